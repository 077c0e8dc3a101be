"""Completions that are to be JSON of a certain form."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from functools import lru_cache
from importlib.util import find_spec
from inspect import Parameter, Signature
from keyword import iskeyword
from typing import TYPE_CHECKING, Any, Final

from guerdon._functions.options import flag
from guerdon._lanes.native.columns import json_text
from guerdon._system.extras import pip_install
from guerdon.errors import DataError, RegistrationError
from guerdon.rewards.answers import _tag
from guerdon.rewards.native_reward import KernelOptions
from guerdon.rewards.worker_reward import WorkerReward

if TYPE_CHECKING:
    from typing import Unpack

__all__ = ["SchemaReward", "json_schema"]

# Schemas of a column that stay compiled.
_KEPT: Final = 256


class SchemaReward(WorkerReward):
    """Checks that a completion is JSON that fits a schema: made by `guerdon.rewards.json_schema`.

    It is callable as TRL calls reward functions, ``(prompts, completions, **columns)``, and then
    gives a list with 1.0, 0.0 or None for each completion.

    Attributes:
        spec: What the dispatcher needs to know about it.
    """

    def __call__(
        self, prompts: object = None, completions: object = None, completion_ids: object = None, **columns: object
    ) -> list[float | None]:
        """The scores of a batch, on this thread: a dispatcher's timeouts don't hold here.

        Raises:
            DataError: A column is missing, or a schema is wrong.
        """
        scores = []
        for sample, (text, schema) in enumerate(self._rows(prompts, completions, completion_ids, columns)):
            try:
                scores.append(self._sample(text) if self._column is None else self._sample(text, schema))
            except DataError as error:
                raise DataError(f"reward function {self.name!r}: sample {sample}: {error}.") from None
        return scores


def json_schema(
    column: str = "schema",
    *,
    schema: Mapping[str, Any] | bool | str | None = None,
    tag: str | None = None,
    formats: bool = False,
    **options: Unpack[KernelOptions],
) -> SchemaReward:
    """1.0 where the completion is JSON that a schema takes, else 0.0.

    Formula: ``float(is_valid(schema, json.loads(completion)))``, 0.0 where the text is not JSON:
    nor are, other than for ``json.loads``, NaN and Infinity, half a surrogate pair, numbers beyond
    float64's range and more levels than Python reads (about 990).
    Source: jsonschema-rs 0.60, ``validator_for(schema, validate_formats=formats).is_valid``, which
    it calls in a worker; jsonschema 4.26, ``validator_for(schema)(schema).is_valid``, but for
    patterns, which are ECMAScript's here.

    The schema's draft is that of its ``$schema``, else 2020-12. Nothing is fetched: a reference has
    to lead into the schema itself. A wrong schema in a column is an ``error`` of its sample.

    Args:
        column: A schema a sample, as a dict, a bool or JSON; None abstains.
        schema: One for all samples, instead of the column.
        tag: As for `guerdon.rewards.exact_match`.
        formats: Check ``format`` too, of email addresses and dates for instance.
        options: Those of `guerdon.reward` that `KernelOptions` names.

    Raises:
        RegistrationError: An option is wrong, ``schema`` is not a JSON schema, or jsonschema-rs is
            not installed.

    Examples:
        >>> from guerdon import rewards
        >>> city = {"type": "object", "required": ["name"], "properties": {"people": {"type": "integer"}}}
        >>> rewards.json_schema(schema=city)(completions=['{"name": "Rome"}', '{"people": 3}', "Rome"])
        [1.0, 0.0, 0.0]
        >>> rewards.json_schema("form")(completions=["[1, 2]"], form=[{"type": "array", "maxItems": 1}])
        [0.0]
    """
    if find_spec("jsonschema_rs") is None:
        raise RegistrationError(f"json_schema() needs jsonschema-rs: {pip_install('schema')}.")
    given = {"column": column, "schema": schema, "tag": tag, "formats": flag("json_schema", "formats", formats)}
    whole = None if schema is None else _checked(schema, formats)
    own = None if whole is not None else column
    sample = SchemaSample(own, whole, _tag(tag), formats)
    return SchemaReward((json_schema, given), sample, own, options, KernelOptions.__annotations__)


def _checked(schema: object, formats: bool) -> str:
    """A schema as JSON."""
    try:
        text = json_text(schema)
        _validator(text, formats)
    except DataError as error:
        raise RegistrationError(f"json_schema(): {error}.") from None
    except (TypeError, ValueError) as error:
        raise RegistrationError(f"json_schema(): the schema is not JSON: {error}.") from None
    return text


class SchemaSample:
    """The callable of a worker: it takes a completion's text and, without a schema for all, that of
    its column."""

    def __init__(self, column: str | None, schema: str | None, tag: str | None, formats: bool) -> None:
        self._given = column, schema, tag, formats
        self._tagged = None if tag is None else re.compile(rf"<{re.escape(tag)}>(.*?)</{re.escape(tag)}>", re.DOTALL)
        if column is None or (column.isidentifier() and not iskeyword(column)):
            kind = Parameter.POSITIONAL_OR_KEYWORD
            names = ("text",) if column is None else ("text", column)
            self.__signature__ = Signature([Parameter(name, kind) for name in names])

    def __call__(self, text: str, *value: object, **named: object) -> float | None:
        """1.0, 0.0 or None.

        Raises:
            DataError: The schema is wrong.
        """
        column, schema, _, formats = self._given
        if schema is None:
            try:
                schema = json_text(value[0] if value else named[str(column)])
            except (TypeError, ValueError) as error:
                raise DataError(f"column {column!r}: the schema is not JSON: {error}") from None
            if schema == "null":
                return None
        try:
            validator = _validator(schema, formats)
        except DataError as error:
            raise error if column is None else DataError(f"column {column!r}: {error}") from None
        if self._tagged is not None:
            found = self._tagged.findall(text)
            if not found:
                return 0.0
            text = found[-1].strip()
        try:
            return float(validator.is_valid(_loads(text)))
        except (ValueError, RecursionError):  # it is not JSON, or too deep
            return 0.0

    def __reduce__(self) -> tuple[Callable[..., SchemaSample], tuple[object, ...]]:
        return SchemaSample, self._given


@lru_cache(_KEPT)
def _validator(schema: str, formats: bool) -> Any:
    """A compiled schema.

    Raises:
        DataError: It is wrong.
    """
    from jsonschema_rs import validator_for

    try:
        json.loads(schema)
    except ValueError as error:
        raise DataError(f"the schema is not JSON: {error}") from None
    try:
        return validator_for(schema, validate_formats=formats, offline=True)
    except Exception as error:
        first = next(iter(str(error).splitlines()), type(error).__name__)
        raise DataError(f"the schema is wrong: {first}") from None


def _loads(text: str) -> object:
    """Parses JSON strictly by its standard.

    Raises:
        ValueError: It is not JSON.
    """
    value = json.loads(text, parse_constant=_refused, parse_float=_finite)
    # Both raise for half a surrogate pair.
    text.encode()
    if "\\u" in text:
        json.dumps(value, ensure_ascii=False).encode()
    return value


def _finite(digits: str) -> float:
    number = float(digits)
    return number if abs(number) != float("inf") else _refused(digits)


def _refused(digits: str) -> float:
    raise ValueError(f"{digits} is not a number of JSON")

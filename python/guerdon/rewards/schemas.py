"""Completions that are to be JSON of a certain form."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from guerdon._kernels.columns import KernelColumn
from guerdon._kernels.reward import COMPLETION, NativeReward, build
from guerdon._registration.options import flag
from guerdon.errors import RegistrationError
from guerdon.rewards.answers import _tag

if TYPE_CHECKING:
    from typing import Unpack

    from guerdon._kernels.reward import KernelOptions

__all__ = ["json_schema"]


def json_schema(
    column: str = "schema",
    *,
    schema: Mapping[str, Any] | bool | str | None = None,
    tag: str | None = None,
    formats: bool = False,
    **options: Unpack[KernelOptions],
) -> NativeReward:
    """1.0 where the completion is JSON that a schema takes, else 0.0.

    Formula: ``float(is_valid(schema, json.loads(completion)))``, 0.0 where the text is no JSON:
    nor are, other than for ``json.loads``, NaN and Infinity, half a surrogate pair, numbers beyond
    float64's range and more than 127 levels. Whole numbers beyond 64 bits count as float64.
    Source: jsonschema-rs 0.60, ``validator_for(schema, validate_formats=formats).is_valid``, which
    is the same code; jsonschema 4.26, ``validator_for(schema)(schema).is_valid``, but for patterns,
    which are ECMAScript's here.

    The schema's draft is that of its ``$schema``, else 2020-12. Nothing is fetched: a reference has
    to lead into the schema itself. A wrong schema in a column is an ``error`` of its sample.

    Args:
        column: A schema a sample, as a dict, a bool or JSON; None abstains.
        schema: One for all samples, instead of the column.
        tag: As for `guerdon.rewards.exact_match`.
        formats: Check ``format`` too, of email addresses and dates for instance.
        options: Those of `guerdon.reward` that `KernelOptions` names.

    Raises:
        RegistrationError: An option is wrong, or ``schema`` is no JSON schema.

    Examples:
        >>> from guerdon import rewards
        >>> city = {"type": "object", "required": ["name"], "properties": {"people": {"type": "integer"}}}
        >>> rewards.json_schema(schema=city)(completions=['{"name": "Rome"}', '{"people": 3}', "Rome"])
        [1.0, 0.0, 0.0]
        >>> rewards.json_schema("form")(completions=["[1, 2]"], form=[{"type": "array", "maxItems": 1}])
        [0.0]
    """
    given = {"column": column, "schema": schema, "tag": tag, "formats": flag("json_schema", "formats", formats)}
    fields = (COMPLETION,) if schema is not None else (COMPLETION, KernelColumn(column, "json"))
    own = {"tag": _tag(tag), "formats": formats, "schema": None if schema is None else _text(schema)}
    return build(json_schema, given, fields, options, **own)


def _text(schema: object) -> str:
    """A schema as JSON."""
    if isinstance(schema, str):
        return schema
    try:
        return json.dumps(schema, ensure_ascii=False, allow_nan=False)
    except (TypeError, ValueError) as error:
        raise RegistrationError(f"json_schema(): the schema is no JSON: {error}.") from None

"""The texts of a batch's columns in requests.

- A column of strings is used as it is, without a copy. Other values become strings here, once a
  batch, on the caller's thread.
- A value that can't go into a request is refused before any call, with its column and sample.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from guerdon._columns import Single
from guerdon._http.messages import Images, as_messages, is_messages, transcript, turns
from guerdon._http.template import Field
from guerdon.errors import DataError

__all__ = ["JSON", "PLAIN", "texts_of"]

# What the engine calls columns of texts, and of texts that are JSON already.
PLAIN = "text"
JSON = "json"


def texts_of(
    values: Sequence[object] | Single,
    field: Field,
    samples: int,
    function: str,
    *,
    images: Sequence[object] | Single | None = None,
    always: bool = False,
) -> tuple[str, list[object]] | None:
    """What kind of column the engine gets for a field, and the column; None where it can take the
    values as they are.

    Args:
        values: One per sample, or one for all.
        function: Name of the judge, for messages.
        images: The column of images that goes with a conversation's messages.
        always: Make a column of its own of it in any case, of the same kind each time.

    Raises:
        DataError: A value can't go into a request.
    """
    if field.form:
        return _conversations(values, field, samples, function, images)
    if isinstance(values, Single):
        kind, one = texts_of([values.value], field, 1, function, always=always) or (PLAIN, [values.value])
        return kind, one * samples
    if not always and not field.rest and all(type(value) is str for value in values):
        return None
    make = _as_json if field.json else _as_text
    made: list[object] = []
    for sample, value in enumerate(values):
        try:
            made.append(make(value, field))
        except Exception as error:
            raise DataError(
                f"column {field.column!r} of sample {sample} can't go into a request of {function!r} as {field}: "
                f"{type(error).__name__}: {error}."
            ) from error
    return JSON if field.json else PLAIN, made


def _as_text(value: Any, field: Field) -> str:
    if field.rest:
        return str(f"{{0{field.rest}}}".format(value))
    if isinstance(value, str):
        return str(value)
    return transcript(value) if is_messages(value) else format(value)


def _as_json(value: Any, field: Field) -> str:
    return json.dumps(value, ensure_ascii=False, allow_nan=False, default=_plain)


def _plain(value: Any) -> Any:
    """Arrays, tensors and their numbers as lists and numbers."""
    if hasattr(value, "tolist"):
        return value.tolist()
    raise TypeError(f"a {type(value).__name__} is not JSON")


def _conversations(
    values: Sequence[object] | Single,
    field: Field,
    samples: int,
    function: str,
    images: Sequence[object] | Single | None,
) -> tuple[str, list[object]]:
    """Conversations or images as a field wants them; the samples of a group share theirs."""
    encoder = Images()
    known: dict[tuple[int, int], str] = {}
    made: list[object] = []
    for sample in range(samples):
        value, shown = _of(values, sample), _of(images, sample)
        try:
            text = known.get((id(value), id(shown)))
            if text is None:
                text = known[id(value), id(shown)] = _in_form(value, field, encoder, shown)
        except Exception as error:
            raise DataError(
                f"column {field.column!r} of sample {sample} can't go into a request of {function!r}: "
                f"{type(error).__name__}: {error}."
            ) from error
        made.append(text)
    return PLAIN if field.form == "turns" else JSON, made


def _of(values: Sequence[object] | Single | None, sample: int) -> object:
    if values is None:
        return None
    return values.value if isinstance(values, Single) else values[sample]


def _in_form(value: object, field: Field, encoder: Images, shown: object) -> str:
    if field.form == "images":
        return encoder.parts(value)
    role = "assistant" if field.column == "completion" else "user"
    if field.form == "turns":
        return turns(value, role)
    messages = as_messages(value, role, encoder, shown)
    return "".join(json.dumps(message, allow_nan=False, default=_plain) + "," for message in messages)

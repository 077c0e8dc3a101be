"""The columns of a batch as texts for a kernel.

- A column of strings is used as it is, without a copy. Other values become JSON here, once a batch,
  on the caller's thread; token ids become strings of one-byte characters, four an id.
- A value that a kernel can't take becomes the reason, which fails its sample alone.
"""

from __future__ import annotations

import json
from array import array
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from numbers import Number
from typing import Any, Final, Literal

from guerdon._batch.columns import Single

__all__ = ["MADE", "PLAIN", "KernelColumn", "json_text", "texts_of"]

# The engine's names of columns of unchanged texts, and of texts made here.
PLAIN: Final = "text"
MADE: Final = "made"

# Beginning of a text that is a reason: no character of any text.
_WRONG: Final = "\ufffe"


@dataclass(frozen=True)
class KernelColumn:
    """A column that a kernel gets.

    Attributes:
        column: Its name: ``"completion"``, ``"completion_ids"`` or one of the dataset's.
        form: ``"text"``: the last assistant message. ``"references"``: a text, several, or None.
            ``"json"``: any value; a string is JSON already. ``"ids"``: token ids. ``"count"``: how
            many.
    """

    column: str
    form: Literal["text", "references", "json", "ids", "count"]

    @property
    def columns(self) -> tuple[str, ...]:
        """Names of the columns that it is made of."""
        return (self.column,)

    @property
    def optional(self) -> tuple[str, ...]:
        """None."""
        return ()

    @property
    def is_text(self) -> bool:
        """It is the last assistant message, whatever the completion is."""
        return self.form == "text"

    def texts(
        self, values: Mapping[str, Sequence[object] | Single], samples: int, function: str, *, always: bool
    ) -> tuple[str, list[object]] | None:
        """Returns the kind of column that the engine gets, and the column; None where it takes the
        values as they are."""
        return texts_of(values[self.column], self, samples, always=always)


class _OddValueError(Exception):
    """The value is of no kind that is taken."""


def texts_of(
    values: Sequence[object] | Single, field: KernelColumn, samples: int, *, always: bool = False
) -> tuple[str, list[object]] | None:
    """Returns the kind of column that the engine gets for a field, and the column; None where it
    can take the values as they are.

    Args:
        values: One per sample, or one for all.
        always: Make a column of its own of it in any case, of the same kind each time.
    """
    if isinstance(values, Single):
        kind, one = texts_of([values.value], field, 1, always=always) or (PLAIN, [values.value])
        return kind, one * samples
    if not (always or field.form in ("ids", "count")) and all(type(value) is str for value in values):
        return None
    make = _MAKERS[field.form]
    made: list[object] = []
    for value in values:
        try:
            made.append(make(value))
        except Exception as error:  # whatever the value's own methods raise
            made.append(_WRONG + _reason(error))
    return (PLAIN if field.form == "text" else MADE), made


def _reason(error: Exception) -> str:
    kind = type(error).__name__
    try:
        return str(error) if isinstance(error, _OddValueError) else f"{kind}: {error}"
    except Exception:  # its own text fails too
        return kind


def _text(value: Any) -> str:
    """A string of Python's own class."""
    return str.__str__(value)


def _references(value: Any) -> str:
    if not isinstance(value, (list, tuple)) and not getattr(value, "ndim", 0):
        return json.dumps(_reference(value), ensure_ascii=False)
    listed = list(value)
    if not listed:
        raise _OddValueError("the list of references is empty")
    there = [one for one in map(_reference, listed) if one is not None]
    return json.dumps(there or None, ensure_ascii=False)


def _reference(value: Any) -> str | None:
    """A number becomes the text that Python writes for it; NaN and None are not references."""
    if not isinstance(value, (str, Number)) and hasattr(value, "item"):
        value = value.item()  # of an array or tensor without dimensions
    if isinstance(value, str):
        return _text(value)
    if _is_missing(value):
        return None
    if isinstance(value, Number):
        return str(value)
    raise _OddValueError(f"expected a text, a number or a list of them, not a {type(value).__name__}")


def _is_missing(value: Any) -> bool:
    return value is None or (isinstance(value, Number) and bool(value != value))


def json_text(value: Any) -> str:
    """A value as JSON; a string is JSON already."""
    if isinstance(value, str):
        return _text(value)
    if _is_missing(value):
        return "null"
    return json.dumps(value, ensure_ascii=False, allow_nan=False, default=_plain)


def _plain(value: Any) -> Any:
    """Arrays, tensors and their numbers as lists and numbers."""
    if hasattr(value, "tolist"):
        return value.tolist()
    raise TypeError(f"a {type(value).__name__} is not JSON")


def _ids(value: Any) -> str:
    packed = array("I", _listed_ids(value))
    if packed.itemsize != 4:
        raise _OddValueError("token ids of 32 bits are not known here")
    if _BIG_ENDIAN:
        packed.byteswap()
    return packed.tobytes().decode("latin-1")


def _count(value: Any) -> str:
    return str(len(_listed_ids(value)))


def _listed_ids(value: Any) -> Any:
    listed = value.tolist() if hasattr(value, "tolist") else value
    if isinstance(listed, (str, bytes, dict)) or not hasattr(listed, "__len__"):
        raise _OddValueError(f"expected a list of token ids, not a {type(value).__name__}")
    return listed


_BIG_ENDIAN: Final = array("H", [1]).tobytes()[0] == 0
_MAKERS: Final = {"text": _text, "references": _references, "json": json_text, "ids": _ids, "count": _count}

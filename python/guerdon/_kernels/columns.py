"""The columns of a batch as texts for a kernel.

- A column of strings is used as it is, without a copy. Other values become JSON here, once a batch,
  on the caller's thread; token ids become strings of one-byte characters, four an id.
- A value that a kernel can't take is refused before any call, with its column and sample.
"""

from __future__ import annotations

import json
from array import array
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final, Literal

from guerdon._columns import Single
from guerdon.errors import DataError

__all__ = ["JSON", "PLAIN", "KernelColumn", "texts_of"]

# What the engine calls columns of texts, and of texts that are JSON.
PLAIN: Final = "text"
JSON: Final = "json"


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


def texts_of(
    values: Sequence[object] | Single, field: KernelColumn, samples: int, function: str, *, always: bool = False
) -> tuple[str, list[object]] | None:
    """What kind of column the engine gets for a field, and the column; None where it can take the
    values as they are.

    Args:
        values: One per sample, or one for all.
        function: Name of the reward function, for messages.
        always: The column is to be of the same kind whatever is in it.

    Raises:
        DataError: A value is none that the kernel takes.
    """
    if isinstance(values, Single):
        kind, one = texts_of([values.value], field, 1, function, always=always) or (PLAIN, [values.value])
        return kind, one * samples
    made_always = field.form in ("ids", "count") or (always and field.form != "text")
    if not made_always and all(type(value) is str for value in values):
        return None
    make = _MAKERS[field.form]
    made: list[object] = []
    for sample, value in enumerate(values):
        try:
            made.append(make(value))
        except Exception as error:  # whatever the value's own methods raise
            raise DataError(
                f"column {field.column!r} of sample {sample} is nothing that {function!r} can take: "
                f"{type(error).__name__}: {error}."
            ) from error
    return (JSON if field.form in ("references", "json") else PLAIN), made


def _text(value: object) -> str:
    if not isinstance(value, str):
        raise TypeError(f"a {type(value).__name__} is no text")
    return str(value)


def _references(value: Any) -> str:
    if value is None:
        return "null"
    listed = value.tolist() if hasattr(value, "tolist") else value
    if isinstance(listed, (list, tuple)):
        return json.dumps([_reference(one) for one in listed], ensure_ascii=False)
    return json.dumps(_reference(listed), ensure_ascii=False)


def _reference(value: object) -> str:
    """A number is the text that Python writes for it."""
    if isinstance(value, (str, int, float)):
        return str(value)
    raise TypeError(f"expected a text, a number or a list of them, not a {type(value).__name__}")


def _json(value: Any) -> str:
    if isinstance(value, str):
        return str(value)
    return json.dumps(value, ensure_ascii=False, allow_nan=False, default=_plain)


def _plain(value: Any) -> Any:
    """Arrays, tensors and their numbers as lists and numbers."""
    if hasattr(value, "tolist"):
        return value.tolist()
    raise TypeError(f"a {type(value).__name__} is not JSON")


def _ids(value: Any) -> str:
    packed = array("I", value.tolist() if hasattr(value, "tolist") else value)
    if packed.itemsize != 4:
        raise TypeError("token ids of 32 bits are not known here")
    if _BIG_ENDIAN:
        packed.byteswap()
    return packed.tobytes().decode("latin-1")


def _count(value: Any) -> str:
    return str(len(value))


_BIG_ENDIAN: Final = array("H", [1]).tobytes()[0] == 0
_MAKERS: Final = {"text": _text, "references": _references, "json": _json, "ids": _ids, "count": _count}

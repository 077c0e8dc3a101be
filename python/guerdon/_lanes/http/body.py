"""The JSON of a request as pieces: bytes of JSON, and columns by number. The engine joins them
without Python."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any, TypeAlias

from guerdon._lanes.http.template import Field

__all__ = [
    "ColumnValue",
    "ColumnValues",
    "Messages",
    "OptionalPair",
    "Parts",
    "Piece",
    "Pieces",
    "Repair",
    "TemplateText",
]

# The pieces for the engine: JSON as it is, ("text" | "value", column), ("repair", 0), pieces for
# each sample.
Piece: TypeAlias = "bytes | tuple[str, int] | list[Piece]"


class TemplateText(list["str | Field"]):
    """A text with fields in it, as a value of the JSON."""


class ColumnValue:
    """A field as a separate value."""

    def __init__(self, field: Field) -> None:
        self.field = field


class ColumnValues(ColumnValue):
    """A list with a field of each sample of the request."""


class Messages(ColumnValue):
    """The messages of a conversation in a list of messages, before others."""


class Parts:
    """A text with fields in it, and fields that are more parts behind it, as a list."""

    def __init__(self, text: TemplateText, more: Sequence[Field], kind: str = "text") -> None:
        self.text, self.more, self.kind = text, more, kind


class OptionalPair(ColumnValue):
    """A field that is a pair of an object with a comma behind it, or nothing."""


class Repair:
    """The end of a list of messages, at which the next attempt has the error of the last."""


class Pieces:
    """Puts the pieces of a body together; ``fields`` are the columns that they number."""

    def __init__(self) -> None:
        self.fields: list[Field] = []

    def of(self, value: Any) -> list[Piece]:
        """Returns the pieces of a JSON value, in which `TemplateText`, `ColumnValue` and
        `ColumnValues` may occur.

        Raises:
            TypeError, ValueError: It isn't JSON.
        """
        joined: list[Piece] = []
        for piece in self._walk(value):
            if isinstance(piece, bytes) and joined and isinstance(joined[-1], bytes):
                joined[-1] += piece
            else:
                joined.append(piece)
        return joined

    def _walk(self, value: Any) -> list[Piece]:
        if isinstance(value, TemplateText):
            return [b'"', *(self._part(part) for part in value), b'"']
        if isinstance(value, ColumnValues):
            return [b"[", [("value", self._column(value.field))], b"]"]
        if isinstance(value, ColumnValue):
            return [("value", self._column(value.field))]
        if isinstance(value, Mapping):
            first = [each.field for each in value.values() if isinstance(each, OptionalPair)]
            others = [pair for pair in value.items() if not isinstance(pair[1], OptionalPair)]
            pairs = ([_json(str(name)), b":", *self._walk(each)] for name, each in others)
            return [b"{", *(("value", self._column(field)) for field in first), *_commas(list(pairs)), b"}"]
        if isinstance(value, Parts):
            text = self._walk({"type": value.kind, "text": value.text})
            return [b"[", *text, *(("value", self._column(field)) for field in value.more), b"]"]
        if isinstance(value, Sequence) and not isinstance(value, (str, bytes, bytearray, memoryview)):
            return [b"[", *self._list(list(value)), b"]"]
        return [_json(value)]

    def _list(self, values: list[Any]) -> list[Piece]:
        """The elements of a list. Conversations end with a comma, a repair begins with one."""
        pieces: list[Piece] = []
        for index, each in enumerate(values):
            if isinstance(each, Repair):
                pieces.append(("repair", 0))
            elif isinstance(each, Messages):
                pieces += self._walk(each)
            else:
                more = any(not isinstance(later, Repair) for later in values[index + 1 :])
                pieces += [*self._walk(each), *([b","] if more else [])]
        return pieces

    def _part(self, part: str | Field) -> Piece:
        return ("text", self._column(part)) if isinstance(part, Field) else _json(part)[1:-1]

    def _column(self, field: Field) -> int:
        if field not in self.fields:
            self.fields.append(field)
        return self.fields.index(field)


def _json(value: Any) -> bytes:
    return json.dumps(value, allow_nan=False).encode()


def _commas(parts: list[list[Piece]]) -> list[Piece]:
    return [piece for index, part in enumerate(parts) for piece in ([b","] if index else []) + part]

"""Bytes of a program's process as values on the trusted side.

- Exact builtin values, those of `datetime`, `fractions` and `decimal`, and `Opaque` and `Source`,
  which equal nothing: no class of a program is ever here, and no text is run.
- `EncodingError` for whatever bytes it can't take. Bytes are hostile: the memory that they cost is
  linear in them. Time is bounded by whoever decodes: keys may be made to have one hash.
"""

from __future__ import annotations

import struct
from collections import deque
from collections.abc import Callable
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from fractions import Fraction
from typing import Any, Final

from guerdon.rewards.code.child.encoding import LONGEST_NAME, MAX_DEPTH, MAX_INT_BYTES, EncodingError, Opaque, Source

__all__ = ["decode"]

# Memory that a value may take, in bytes for each byte of it: plain data takes up to 19, as dicts of
# one number, and empty sets 45. A little of anything passes.
_MEMORY: Final = 20
_LEAST_MEMORY: Final = 160 << 20

_FLOAT: Final = struct.Struct("<d")
_COMPLEX: Final = struct.Struct("<dd")
_LENGTH: Final = struct.Struct("<I")


def decode(data: bytes) -> Any:
    """Returns the value that `encode` made the bytes of.

    Raises:
        EncodingError: They are not such bytes, or a value that takes too much memory.
    """
    reader = _ValueReader(data)
    try:
        value = reader.value(0)
    except EncodingError:
        raise
    # TypeError: a key has no hash
    except (struct.error, LookupError, ValueError, TypeError, ArithmeticError) as error:
        raise EncodingError(f"these bytes are no value: {type(error).__name__}") from None
    if reader.at != len(data):
        raise EncodingError("there are bytes after the value")
    return value


class _ValueReader:
    """Reads one value."""

    __slots__ = ("_data", "_memory", "at")

    def __init__(self, data: bytes) -> None:
        self._data = data
        self._memory = max(_LEAST_MEMORY, _MEMORY * len(data))
        self.at = 0

    def value(self, depth: int) -> Any:
        data, at = self._data, self.at
        tag = data[at]
        at += 1
        self.at = at
        constant = _CONSTANTS.get(tag, data)
        if constant is not data:
            return constant
        if tag == _F:
            self.at = at + 8
            self._take(24)
            return _FLOAT.unpack_from(data, at)[0]
        if tag == _C:
            self.at = at + 16
            self._take(32)
            return complex(*_COMPLEX.unpack_from(data, at))
        (count,) = _LENGTH.unpack_from(data, at)
        at += 4
        if count > len(data) - at:  # an item takes at least a byte
            raise EncodingError("the bytes end too early")
        sized = _SIZED.get(tag)
        if sized is not None:
            make, least, of_byte = sized
            self.at = at + count
            self._take(least + of_byte * count)
            return make(data[at : at + count])
        self.at = at
        if depth > MAX_DEPTH:
            raise EncodingError(f"the value is nested more than {MAX_DEPTH} levels deep")
        return self._container(tag, count, depth + 1)

    def _container(self, tag: int, count: int, depth: int) -> Any:
        if tag in (_L, _T):
            self._take(96 + (12 if tag == _L else 20) * count)
            items = self._items(count, depth)
            return items if tag == _L else tuple(items)
        if tag == _D:
            if count % 2:
                raise EncodingError("a key has no value")
            self._take(256 + 60 * max(0, count - 10))
            return self._dict(count // 2, depth)
        if tag in (_E, _Z):
            self._take(232 + 120 * max(0, count - 4))
            made = {self.value(depth) for _ in range(count)}
            return made if tag == _E else frozenset(made)
        if tag == _Q:
            self._take(900 + 24 * count)
            return deque(self._items(count, depth))
        if tag == _R:
            return self._range(count, depth)
        raise EncodingError(f"there is no tag {tag}")

    def _items(self, count: int, depth: int) -> list[Any]:
        value = self.value
        return [value(depth) for _ in range(count)]

    def _range(self, count: int, depth: int) -> range:
        parts = self._items(min(count, 4), depth)
        if [type(part) for part in parts] != [int, int, int] or not parts[2]:
            raise EncodingError("a range is made of three integers")
        made = range(*parts)
        try:
            self._take(128 + 40 * len(made))  # of the list that tests make of it
        except OverflowError:
            raise EncodingError("the range is too long") from None
        return made

    def _dict(self, count: int, depth: int) -> dict[Any, Any]:
        value = self.value
        return {value(depth): value(depth) for _ in range(count)}

    def _take(self, size: int) -> None:
        self._memory -= size
        if self._memory < 0:
            raise EncodingError("the value takes too much memory for its bytes")


def _int(data: bytes) -> int:
    if len(data) > MAX_INT_BYTES:
        raise EncodingError(f"an integer takes more than {MAX_INT_BYTES} bytes")
    return int.from_bytes(data, "little", signed=True)


def _opaque(data: bytes) -> Opaque:
    number, _, kind = data.decode("utf-8").partition(":")
    if not number.isdecimal() or len(number) >= 10:  # then tests could not pass it back
        raise EncodingError("an object has no number")
    return Opaque(kind[:LONGEST_NAME], int(number))


def _exact(data: bytes) -> Any:
    name, _, text = data.decode("utf-8").partition(" ")
    made = _EXACT[name](text)
    if isinstance(made, Decimal) and made.is_snan():
        raise EncodingError("it raises where it is compared")
    return made


_EXACT: Final[dict[str, Callable[[str], Any]]] = {
    "Decimal": Decimal,
    "Fraction": lambda text: Fraction(*map(int, text.split("/"))),
    "date": date.fromisoformat,
    "time": time.fromisoformat,
    "datetime": datetime.fromisoformat,
    "timedelta": lambda text: timedelta(*map(int, text.split())),
}
_F, _C, _L, _T, _D, _E, _Z, _Q, _R = b"fcltdezqr"
_CONSTANTS: Final[dict[int, Any]] = {b"N"[0]: None, b"T"[0]: True, b"F"[0]: False}
# Cost of making the value, and its memory: at least, and for each byte.
_SIZED: Final[dict[int, tuple[Callable[[bytes], Any], int, int]]] = {
    b"i"[0]: (_int, 32, 1),
    b"s"[0]: (lambda data: data.decode("utf-8", "surrogatepass"), 76, 4),
    b"b"[0]: (bytes, 36, 1),
    b"o"[0]: (_opaque, 132, 4),
    b"v"[0]: (_exact, 300, 8),
    b"u"[0]: (lambda data: Source(data.decode("utf-8")), 132, 4),
}

"""Values as bytes between a program and the trusted side.

- Builtin values only (None, bool, numbers, texts, bytes, containers, ranges), those of `datetime`,
  `fractions` and `decimal`, and `Opaque` in place of other objects. `decoding` reads them.
- A sandbox elsewhere runs this source, too: it imports the standard library alone, and works on
  Python 3.8.
- A subclass of a builtin is written as that builtin, by the builtin's own methods; a number of
  numpy, `fractions` or `decimal` as the builtin one that equals it.
"""

from __future__ import annotations

import struct
import sys
from collections import deque
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

__all__ = ["LONGEST_NAME", "MAX_DEPTH", "MAX_INT_BYTES", "BoundError", "EncodingError", "Opaque", "Source", "encode"]

MAX_DEPTH: Final = 100
# Arithmetic with an integer is not linear in it: tests that square one take a second with this.
MAX_INT_BYTES: Final = 1 << 20
LONGEST_NAME: Final = 100

_FLOAT: Final = struct.Struct("<d")
_COMPLEX: Final = struct.Struct("<dd")
_LENGTH: Final = struct.Struct("<I")
_LONGEST: Final = (1 << 32) - 1


class EncodingError(ValueError):
    """A value that can't be sent, or bytes that `encode` did not make."""


class BoundError(EncodingError):
    """The value is too large or too deep."""


class Opaque:
    """Replaces a value that is not data, an object of a program's own class say.

    Attributes:
        guerdon_kind: The name of its type in the program.
        guerdon_number: Its number in the program's process; -1 if it has none there.
    """

    __slots__ = ("guerdon_kind", "guerdon_number")

    def __init__(self, kind: str, number: int = -1) -> None:
        self.guerdon_kind = kind
        self.guerdon_number = number

    def __eq__(self, other: object) -> bool:
        return False

    __hash__ = object.__hash__

    def __repr__(self) -> str:
        return f"<{self.guerdon_kind} object>"


class Source:
    """The text that defines ``function``, in place of a function that tests pass to a program."""

    __slots__ = ("text",)

    def __init__(self, text: str) -> None:
        self.text = text


class _Bounds:
    __slots__ = ("limit", "opaque")

    def __init__(self, limit: int, opaque: Callable[[Any], int] | None) -> None:
        self.limit = limit
        self.opaque = opaque

    def check(self, size: int) -> None:
        if size > self.limit:
            raise BoundError(f"the value takes more than {self.limit} bytes")


if TYPE_CHECKING:
    _Writer = Callable[[Any, bytearray, _Bounds, int], None]


def encode(value: object, limit: int = _LONGEST, *, opaque: Callable[[Any], int] | None = None) -> bytes:
    """`value` as bytes.

    Args:
        opaque: Numbers what is not data, which becomes an `Opaque`; without it that is refused.

    Raises:
        EncodingError: It is nested too deeply, takes more than `limit` bytes, or is not data.
    """
    out = bytearray()
    bounds = _Bounds(min(limit, _LONGEST), opaque)
    _write(value, out, bounds, 0)
    bounds.check(len(out))
    return bytes(out)


def _write(value: Any, out: bytearray, bounds: _Bounds, depth: int) -> None:
    if len(out) > bounds.limit:
        bounds.check(len(out))
    if depth > MAX_DEPTH:
        raise BoundError(f"the value is nested more than {MAX_DEPTH} levels deep")
    kind = type(value)
    writer = _WRITERS.get(kind) or next((found for base, found in _WRITERS.items() if issubclass(kind, base)), None)
    if writer is not None:
        writer(value, out, bounds, depth)
        return
    plain = _nearest(value, kind, arrays=bounds.opaque is not None)
    if plain is not value:
        _write(plain, out, bounds, depth + 1)
        return
    text = _TEXTS.get((str(kind.__module__), kind.__name__))
    if text is not None:
        _sized(b"v", f"{kind.__name__} {text(value)}".encode(), out)
        return
    if bounds.opaque is None:
        raise EncodingError(f"a {kind.__name__} is no data")
    name = kind.__name__ if type(kind.__name__) is str else "object"
    _sized(b"o", f"{bounds.opaque(value)}:{name[:LONGEST_NAME]}".encode("utf-8", "replace"), out)


def _nearest(value: Any, kind: type, *, arrays: bool) -> Any:
    """The builtin value that equals it, a list for an array; `value` itself if there is none.

    Nothing is imported: a value of a module that is not loaded can't be there.
    """
    module = str(kind.__module__)
    if module == "numpy" and (arrays or issubclass(kind, sys.modules["numpy"].generic)):
        return value.tolist()
    if (module, kind.__name__) in _FRACTIONS:
        for number in (int, float):
            with suppress(ValueError, OverflowError):  # NaN and infinity are not integers
                if number(value) == value:
                    return number(value)
    return value


def _sized(tag: bytes, data: bytes, out: bytearray) -> None:
    if len(data) > _LONGEST:
        raise BoundError("the value is too large")
    out += tag
    out += _LENGTH.pack(len(data))
    out += data


def _write_int(value: int, out: bytearray, bounds: _Bounds, depth: int) -> None:
    bits = int.bit_length(value)
    if bits // 8 >= MAX_INT_BYTES or bits // 8 > bounds.limit:
        bounds.check(bits // 8)
        raise BoundError(f"an integer takes more than {MAX_INT_BYTES} bytes")
    _sized(b"i", int.to_bytes(value, bits // 8 + 1, "little", signed=True), out)


def _write_complex(value: complex, out: bytearray, bounds: _Bounds, depth: int) -> None:
    value = complex.__add__(value, 0j) if type(value) is not complex else value
    out += b"c"
    out += _COMPLEX.pack(value.real, value.imag)


def _write_str(value: str, out: bytearray, bounds: _Bounds, depth: int) -> None:
    bounds.check(str.__len__(value))
    _sized(b"s", str.encode(value, "utf-8", "surrogatepass"), out)


def _write_bytes(value: bytes, out: bytearray, bounds: _Bounds, depth: int) -> None:
    bounds.check(bytes.__len__(value))
    _sized(b"b", bytes.__getitem__(value, slice(None)), out)


def _write_dict(value: dict[Any, Any], out: bytearray, bounds: _Bounds, depth: int) -> None:
    flat = [part for item in dict.items(value) for part in item]
    _items(b"d", len(flat), flat, out, bounds, depth)


def _write_opaque(value: Opaque, out: bytearray, bounds: _Bounds, depth: int) -> None:
    if value.guerdon_number < 0:
        raise EncodingError(f"a {value.guerdon_kind} is no data")
    _sized(b"o", f"{value.guerdon_number}:{value.guerdon_kind[:LONGEST_NAME]}".encode("utf-8", "replace"), out)


def _container(tag: bytes, kind: Any) -> _Writer:
    return lambda value, *more: _items(tag, kind.__len__(value), kind.__iter__(value), *more)


def _set(tag: bytes, kind: Any) -> _Writer:
    def write(value: Any, out: bytearray, bounds: _Bounds, depth: int) -> None:
        if bounds.opaque is not None:
            _items(tag, kind.__len__(value), kind.__iter__(value), out, bounds, depth)
            return
        # These are cases, whose bytes name a cached outcome in any process.
        items = []
        for item in kind.__iter__(value):
            items.append(bytearray())
            _write(item, items[-1], bounds, depth + 1)
        _items(tag, len(items), (), out, bounds, depth)
        out += b"".join(sorted(items))

    return write


def _items(tag: bytes, count: int, items: Iterable[Any], out: bytearray, bounds: _Bounds, depth: int) -> None:
    bounds.check(count)
    out += tag
    out += _LENGTH.pack(count)
    for item in items:
        _write(item, out, bounds, depth + 1)


# A bool is an int: the first type that fits counts.
_WRITERS: Final[dict[type, _Writer]] = {
    type(None): lambda _value, out, *_: out.extend(b"N"),
    bool: lambda value, out, *_: out.extend(b"T" if value else b"F"),
    int: _write_int,
    float: lambda value, out, *_: out.extend(b"f" + _FLOAT.pack(value)),
    complex: _write_complex,
    str: _write_str,
    bytes: _write_bytes,
    list: _container(b"l", list),
    tuple: _container(b"t", tuple),
    dict: _write_dict,
    set: _set(b"e", set),
    frozenset: _set(b"z", frozenset),
    deque: _container(b"q", deque),
    bytearray: lambda value, *more: _write_bytes(bytes(value), *more),
    range: lambda value, *more: _items(b"r", 3, (value.start, value.stop, value.step), *more),
    Opaque: _write_opaque,
    Source: lambda value, out, *_: _sized(b"u", value.text.encode(), out),
}
_FRACTIONS: Final = (("fractions", "Fraction"), ("decimal", "Decimal"))
# Values that are data as a text, by module and name.
_TEXTS: Final[dict[tuple[str, str], Callable[[Any], str]]] = {
    **dict.fromkeys(_FRACTIONS, str),
    **dict.fromkeys((("datetime", name) for name in ("date", "time", "datetime")), lambda value: value.isoformat()),
    ("datetime", "timedelta"): lambda value: f"{value.days} {value.seconds} {value.microseconds}",
}

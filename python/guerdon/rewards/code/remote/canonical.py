"""Values as texts of one form: two values that a case takes for the same have the same text.

- It is sent to a sandbox as source, before the program, and runs here for expected values: it
  imports the standard library alone, and works on Python 3.8.
- Tokens are between single spaces, each number by itself: with ``numbers`` a float stays one, to be
  compared by size; else what equals an integer is written as one.
- Numbers of numpy, `fractions` and `decimal` are the builtin ones that they equal, arrays are
  lists, as `encoding` has it. Any other object is written as what no expected value is.
"""

from __future__ import annotations

import json
from collections import deque
from typing import Any

__all__ = ["NotDataError", "canonical"]

_DEEPEST = 100
_MOST_BITS = 10_000


class NotDataError(ValueError):
    """A value that has no such text."""


def canonical(value: Any, *, numbers: bool, limit: int, opaque: bool = False) -> str:
    """The text of a value.

    Args:
        numbers: Floats stay floats.
        limit: Characters that it may have.
        opaque: Write objects of other classes too; else they are refused.

    Raises:
        NotDataError: The value is no data, is nested too deep, or too long.
    """
    tokens: list[str] = []
    _write(value, tokens, [limit], numbers, opaque, 0)
    return " ".join(tokens)


def _write(value: Any, out: list[str], left: list[int], numbers: bool, opaque: bool, depth: int) -> None:
    if depth > _DEEPEST:
        raise NotDataError(f"the value is nested more than {_DEEPEST} levels deep")
    value = _nearest(value)
    if isinstance(value, (list, tuple, deque)):
        kind: Any = list if isinstance(value, list) else tuple if isinstance(value, tuple) else deque
        _put("q[" if kind is deque else "[", out, left)
        for item in kind.__iter__(value):
            _write(item, out, left, numbers, opaque, depth + 1)
        _put("]", out, left)
    elif isinstance(value, dict):
        _put("(", out, left)
        pairs = [(_key(key, left, opaque, depth), item) for key, item in dict.items(value)]
        for key, item in sorted(pairs, key=lambda pair: pair[0]):
            _put(key, out, left)
            _write(item, out, left, numbers, opaque, depth + 1)
        _put(")", out, left)
    elif isinstance(value, (set, frozenset)):
        kind = set if isinstance(value, set) else frozenset
        _put("{", out, left)
        for key in sorted(_key(item, left, opaque, depth) for item in kind.__iter__(value)):
            _put(key, out, left)
        _put("}", out, left)
    else:
        _put(_plain(value, numbers, opaque, left[0]), out, left)


def _put(token: str, out: list[str], left: list[int]) -> None:
    left[0] -= len(token) + 1
    if left[0] < 0:
        raise NotDataError("the value is too long")
    out.append(token)


def _key(value: Any, left: list[int], opaque: bool, depth: int) -> str:
    """A key of a dict or an item of a set, which is the same or not: one token, and no number."""
    tokens: list[str] = []
    _write(value, tokens, left, False, opaque, depth + 1)
    return "k:" + ",".join(tokens)


def _plain(value: Any, numbers: bool, opaque: bool, longest: int) -> str:
    if value is None:
        return "null"
    if isinstance(value, int):
        return _integer(int.__add__(value, 0))
    if isinstance(value, float):
        return _float(float.__add__(value, 0.0), numbers)
    if isinstance(value, complex):
        value = complex.__add__(value, 0j)
        return _float(value.real, numbers) if value.imag == 0 else "c" + complex.__repr__(value)
    if isinstance(value, str):
        if str.__len__(value) > longest:
            raise NotDataError("the value is too long")
        return json.dumps(str.__add__(value, "")).replace(" ", "\\u0020")
    if isinstance(value, (bytes, bytearray)):
        return "b" + bytes(value).hex()
    if isinstance(value, range):
        return _range(value)
    name = str(type(value).__name__)
    if opaque:
        return "<" + json.dumps(name[:100]).replace(" ", "\\u0020") + ">"
    raise NotDataError(f"a {name} is no data")


def _nearest(value: Any) -> Any:
    """The builtin value that a number or an array equals; `value` itself if there is none."""
    kind = type(value)
    module = str(kind.__module__)
    if module == "numpy" and hasattr(value, "tolist"):
        return value.tolist()
    if (module, kind.__name__) in (("fractions", "Fraction"), ("decimal", "Decimal")):
        for number in (int, float):
            try:
                if number(value) == value:
                    return number(value)
            except (ValueError, OverflowError):  # NaN and infinity are not integers
                pass
    return value


def _range(value: range) -> str:
    """Ranges are the same where the integers in them are."""
    start, stop, step = value.start, value.stop, value.step
    count = max(0, (stop - start + step - (1 if step > 0 else -1)) // step)
    shown = [count, start, step][: min(count, 2) + 1]
    return "r" + ":".join(map(_integer, shown))


def _integer(value: int) -> str:
    return str(value) if value.bit_length() <= _MOST_BITS else hex(value)


def _float(value: float, numbers: bool) -> str:
    if value != value:
        return "nan"
    if numbers or value in (float("inf"), float("-inf")) or value != int(value):
        return repr(value)
    return _integer(int(value))

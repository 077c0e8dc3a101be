"""Compares a program's output with the expected one, by rule.

- Both sides are plain values here: texts, or what `encoding` decodes.
- A comparison is quick for whatever a program printed: linear in it.
"""

from __future__ import annotations

import math
import re
from collections import deque
from collections.abc import Callable, Iterable
from itertools import islice
from typing import Any, Final, Literal

from guerdon.rewards.code.child.encoding import Opaque

__all__ = ["RULES", "Compare", "outputs_match", "printable", "shown", "values_match"]

Compare = Literal["exact", "tokens", "numbers"] | Callable[..., Any]

RULES: Final = ("exact", "tokens", "numbers")
_CLOSE: Final = 1e-6
_SHOWN: Final = 80
# A float takes at most some 330 characters.
_LONGEST_NUMBER: Final = 400
_INTEGER: Final = re.compile(r"[+-]?[0-9]+")
_NUMBER: Final = re.compile(
    r"[+-]?(?:(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:e[+-]?[0-9]+)?|inf|infinity|nan)", re.ASCII | re.IGNORECASE
)


def outputs_match(expected: str, printed: str, rule: Compare) -> bool:
    """Returns whether a program printed the expected text.

    Args:
        rule: ``"exact"``: but for white space at the ends of lines and of the text. ``"tokens"``:
            the texts between white space are the same. ``"numbers"``: those, but numbers may
            differ by 1e-6, absolute or of their value; two integers may not. Or a function of both.
    """
    if callable(rule):
        return bool(rule(expected, printed))
    if rule == "exact":
        return _lines(expected) == _lines(printed)
    ours, theirs = expected.split(), printed.split()
    if rule == "tokens" or len(ours) != len(theirs):
        return ours == theirs
    return all(one == other or _same_number(one, other) for one, other in zip(ours, theirs, strict=True))


def _lines(text: str) -> list[str]:
    return [line.rstrip() for line in text.rstrip().split("\n")]


def _same_number(one: str, other: str) -> bool:
    if max(len(one), len(other)) > _LONGEST_NUMBER:
        return False
    if _INTEGER.fullmatch(one) and _INTEGER.fullmatch(other):
        return int(one) == int(other)
    ours, theirs = _float(one), _float(other)
    return ours is not None and theirs is not None and _close(ours, theirs)


def _float(text: str) -> float | None:
    """The number that a text is; None where no float holds it."""
    number = float(text) if _NUMBER.fullmatch(text) else None
    return None if number is not None and math.isinf(number) and not text[-1].isalpha() else number


def values_match(expected: Any, value: Any, rule: Compare) -> bool:
    """Returns whether a function returned the expected value.

    Tuples and lists are the same, as datasets have lists only, and so is NaN and NaN. If the rule
    is ``"numbers"``, floats may differ by 1e-6, absolute or of their value.
    """
    if callable(rule):
        return bool(rule(expected, value))
    return _same(expected, value, close=rule == "numbers")


def printable(text: str) -> str:
    """A program's words go to terminals and files: no control characters, no half surrogates."""
    if text.isprintable():
        return text
    return "".join(one if one.isprintable() else one.encode("unicode_escape").decode() for one in text)


def shown(value: object, depth: int = 3) -> str:
    """A value for a reason: short and printable, for any value."""
    if isinstance(value, int) and not isinstance(value, bool) and value.bit_length() > 1000:
        return f"an integer of {value.bit_length()} bits"
    if isinstance(value, range):
        return f"range({', '.join(map(shown, (value.start, value.stop, value.step)[: 3 - (value.step == 1)]))})"
    if isinstance(value, (str, bytes)):
        text = repr(value[: _SHOWN + 1])
    elif isinstance(value, (list, tuple, set, frozenset, deque)):
        left, right = ("(", ")") if isinstance(value, tuple) else ("[", "]") if isinstance(value, list) else ("{", "}")
        text = f"{left}{_several(value, len(value), depth, lambda one: shown(one, depth - 1))}{right}"
        text = f"deque([{text[1:-1]}])" if isinstance(value, deque) else text
    elif isinstance(value, dict):
        pairs = _several(
            value.items(), len(value), depth, lambda pair: f"{shown(pair[0], depth - 1)}: {shown(pair[1], depth - 1)}"
        )
        text = f"{{{pairs}}}"
    elif isinstance(value, Opaque):
        text = printable(Opaque.__repr__(value))  # asks no program
    else:
        text = printable(_repr(value))
    return text if len(text) <= _SHOWN else f"{text[:_SHOWN]}…"


def _repr(value: object) -> str:
    try:
        return repr(value)
    except Exception:  # of a class of the user's, which may hold what a program returned
        return f"<{type(value).__name__} object>"


def _several(items: Iterable[Any], count: int, depth: int, show: Callable[[Any], str]) -> str:
    if count and not depth:
        return "…"
    return ", ".join([*map(show, islice(items, 8)), *(["…"] if count > 8 else [])])


def _close(one: float, other: float) -> bool:
    return (one != one and other != other) or math.isclose(one, other, rel_tol=_CLOSE, abs_tol=_CLOSE)


def _same(one: Any, other: Any, *, close: bool) -> bool:
    if isinstance(one, (list, tuple)) and isinstance(other, (list, tuple)):
        return len(one) == len(other) and all(_same(a, b, close=close) for a, b in zip(one, other, strict=True))
    if isinstance(one, dict) and isinstance(other, dict):
        return len(one) == len(other) and all(key in other and _same(one[key], other[key], close=close) for key in one)
    if isinstance(one, (int, float)) and isinstance(other, (int, float)):
        if one != one and other != other:
            return True
        if close and (isinstance(one, float) or isinstance(other, float)):
            try:
                return _close(float(one), float(other))
            except OverflowError:
                return False
    try:
        return bool(one == other)
    except ArithmeticError:  # of a Decimal that no other number is compared with
        return False

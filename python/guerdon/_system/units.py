"""Quantities in users' notation: numbers, bytes as texts, numbers with their nouns."""

from __future__ import annotations

import math
import re
from numbers import Integral, Real
from typing import Final

__all__ = ["EXPECTED_BYTES", "FLOAT32_MAX", "LONGEST", "as_bytes", "bytes_text", "integer", "number", "plural"]

FLOAT32_MAX: Final = 3.4028234663852886e38

LONGEST: Final = 1e9
"""The longest time in seconds, some thirty years: the engine counts nanoseconds in 63 bits."""

EXPECTED_BYTES: Final = "a number of bytes, or a text like '2GB' or '512MiB'"

_UNITS: Final = {
    "b": 1,
    "kb": 10**3,
    "mb": 10**6,
    "gb": 10**9,
    "tb": 10**12,
    "kib": 2**10,
    "mib": 2**20,
    "gib": 2**30,
    "tib": 2**40,
}
_TEXT: Final = re.compile(r"(\d{1,15}(?:\.\d{1,9})?)\s*([kmgt]?i?b)", re.IGNORECASE)


def number(value: object) -> float:
    """Returns `value` as a float, to check that it is in a range.

    Values that are not numbers, True and False among them, are NaN and so in no range; an integer
    that no float can hold is infinite, so that it is refused like inf.

    Examples:
        >>> number(3), number(True), number(10**400)
        (3.0, nan, inf)
    """
    if isinstance(value, bool) or not isinstance(value, Real):
        return math.nan
    try:
        return float(value)
    except OverflowError:
        return math.inf
    except Exception:  # a number of the user's own, which has no float after all
        return math.nan


def integer(value: object) -> int | None:
    """`value` as an int, NumPy's integers too; None for values that are not integers, as True and
    False are not.

    Examples:
        >>> integer(3), integer(3.0), integer(True)
        (3, None, None)
    """
    if type(value) is int or value is None:  # what most are; asking `Integral` takes far longer
        return value
    return int(value) if isinstance(value, Integral) and not isinstance(value, bool) else None


def as_bytes(value: object) -> int | None:
    """The number of bytes in `value`; None if it is not one.

    Examples:
        >>> as_bytes("2GB"), as_bytes("1.5 MiB"), as_bytes(4096), as_bytes("much")
        (2000000000, 1572864, 4096, None)
    """
    whole = integer(value)
    if whole is not None:
        return whole
    found = _TEXT.fullmatch(value.strip()) if isinstance(value, str) else None
    unit = None if found is None else _UNITS.get(found[2].lower())
    return None if found is None or unit is None else int(float(found[1]) * unit)


def bytes_text(count: int) -> str:
    """A number of bytes for people."""
    return f"{count / 1e6:.0f} MB" if count < 1e9 else f"{count / 1e9:.1f} GB"


def plural(count: int, one: str, many: str | None = None) -> str:
    """A number with its noun, whose plural is `many`, or has an s."""
    return f"{count} {one if count == 1 else many or one + 's'}"

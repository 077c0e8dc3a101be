"""Counts and times that bound a batch and its waiting callers: each is checked when it is passed,
and refused with the option, the value and the expected form."""

from __future__ import annotations

import math
import sys
from typing import Final

from guerdon._system.units import LONGEST, integer, number
from guerdon.errors import DataError, RegistrationError

__all__ = ["MOST_GENERATIONS", "bound", "patience", "seconds", "whole", "wrong"]

MOST_GENERATIONS: Final = 1 << 20
"""More completions than any prompt has. A larger number is a mistake, for which the first sample of
an open batch would allocate all memory."""


def whole(option: str, value: object, most: int = sys.maxsize) -> int | None:
    """Checks a count from 1 to `most`; None = the default."""
    if value is None:
        return None
    count = integer(value)
    if count is None or count < 1:
        raise wrong(option, value, "a whole number of at least 1")
    if count > most:
        raise wrong(option, value, f"at most {most}")
    return count


def seconds(option: str, value: object) -> float | None:
    """Checks a time; None = no limit."""
    return None if value is None else bound(option, value, " or None for no limit")


def bound(option: str, value: object, otherwise: str = "") -> float:
    """Checks a required time."""
    found = number(value)
    if not 0 < found < math.inf:
        raise wrong(option, value, "seconds, finite and above 0" + ("," + otherwise if otherwise else ""))
    if found > LONGEST:
        raise wrong(option, value, f"at most {LONGEST:.0e} s")
    return found


def patience(timeout: object) -> float | None:
    """Checks a caller's `timeout` in seconds. None waits as long as it takes, 0 or less not at all.

    Raises:
        DataError: It is not a time.
    """
    if timeout is None:
        return None
    found = number(timeout)
    if math.isnan(found):
        raise DataError(f"timeout={timeout!r}: expected seconds to wait, or None to wait as long as it takes.")
    return found


def wrong(option: str, value: object, expected: str) -> RegistrationError:
    """Returns the error for an option of a dispatcher or a batch."""
    return RegistrationError(f"{option}={value!r}: expected {expected}.")

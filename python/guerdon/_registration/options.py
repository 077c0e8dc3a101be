"""Checking the options of one reward function.

- O-1  Every value is checked where it is given, and refused with the function, the option, the value and what would do.
- O-2  Times are seconds, finite and above 0 (``grace`` may be 0).
"""

from __future__ import annotations

import math
from numbers import Real
from typing import Final, Literal

from guerdon._registration.numbers import as_float
from guerdon.batching import Batch
from guerdon.errors import NotYetError, RegistrationError
from guerdon.limits import Limit

__all__ = ["LANES", "Isolation", "Lane", "OnFailure", "as_float"]

Lane = Literal["process", "thread", "asyncio", "http"]
Isolation = Literal["worker", "call"]
OnFailure = Literal["nan", "abstain", "raise"] | float

LANES: Final[tuple[Lane, ...]] = ("process", "thread", "asyncio")
_LATER_LANES: Final = ("native", "device", "ray")
LONGEST: Final = 1e9
_MOST_RETRIES: Final = 10_000
FLOAT32_MAX: Final = 3.4028234663852886e38


def _wrong(function: str, option: str, value: object, expected: str) -> RegistrationError:
    return RegistrationError(f"reward function {function!r}: {option}={value!r}: expected {expected}.")


def seconds(function: str, option: str, value: object, *, zero: bool = False) -> float:
    """A time in seconds (O-2)."""
    expected = f"a number of seconds, finite and {'at least' if zero else 'above'} 0"
    if isinstance(value, bool) or not isinstance(value, Real):
        raise _wrong(function, option, value, expected)
    number = as_float(value)
    if not math.isfinite(number) or number < 0 or (number == 0 and not zero):
        raise _wrong(function, option, value, expected)
    if number > LONGEST:
        raise _wrong(function, option, value, f"at most {LONGEST:.0e} s")
    return number


def retries(function: str, value: object) -> int:
    """Attempts after the first."""
    if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value <= _MOST_RETRIES:
        raise _wrong(function, "retries", value, f"a whole number of attempts after the first, 0 to {_MOST_RETRIES}")
    return value


def lane(function: str, value: object) -> Lane | None:
    """The lane asked for, None if the function's kind decides."""
    if value is None:
        return None
    if value == "http":
        raise RegistrationError(
            f"reward function {function!r}: lane='http' runs no Python: make a judge with guerdon.judge(…), or ask a reward "
            "service with guerdon.remote(url)."
        )
    if isinstance(value, str) and value in _LATER_LANES:
        raise NotYetError(
            f"reward function {function!r}: lane={value!r} is not supported yet. Use one of {', '.join(LANES)}."
        )
    for known in LANES:
        if value == known:
            return known
    raise _wrong(
        function, "lane", value, f"one of {', '.join(map(repr, LANES))}, or None to let the function's kind decide"
    )


def isolation(function: str, value: object) -> Isolation:
    """How much calls share on the process lane."""
    if value == "worker":
        return "worker"
    if value == "call":
        return "call"
    raise _wrong(function, "isolation", value, "'worker' (workers are used again) or 'call' (a fork for each call)")


def on_failure(function: str, value: object) -> OnFailure:
    """What a failed cell becomes."""
    expected = "'nan', 'abstain', 'raise' or a finite number that float32 can hold"
    if value == "nan":
        return "nan"
    if value == "abstain":
        return "abstain"
    if value == "raise":
        return "raise"
    if isinstance(value, bool) or not isinstance(value, Real):
        raise _wrong(function, "on_failure", value, expected)
    number = as_float(value)
    if not abs(number) <= FLOAT32_MAX:
        raise _wrong(function, "on_failure", value, expected)
    return number


def fraction(function: str, value: object) -> float | None:
    """``max_failed_fraction`` of one function; None = the dispatcher's."""
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, Real) or not 0 <= as_float(value) <= 1:
        raise _wrong(function, "max_failed_fraction", value, "a number from 0 to 1, or None for the dispatcher's")
    return float(value)


def limit(function: str, value: object) -> Limit | None:
    """The function's limit."""
    if value is None or isinstance(value, Limit):
        return value
    raise _wrong(function, "limit", value, "a Limit, as in Limit(concurrency=64)")


def batch(function: str, value: object) -> Batch | None:
    """How its samples are put together into calls."""
    if value is None or isinstance(value, Batch):
        return value
    raise _wrong(function, "batch", value, "a Batch, as in Batch(max_size=32)")


def flag(function: str, option: str, value: object) -> bool:
    """True or False and nothing that merely looks like it."""
    if isinstance(value, bool):
        return value
    raise _wrong(function, option, value, "True or False")


def label(function: str, option: str, value: object) -> str | None:
    """A name that metrics, files and messages can carry."""
    if value is None:
        return None
    if not isinstance(value, str) or not value.strip() or value != value.strip() or not value.isprintable():
        raise _wrong(function, option, value, "a name: printable text without spaces at its ends")
    return value

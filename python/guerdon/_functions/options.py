"""Checks of the options of one reward function.

- A wrong value is refused with the function, the option, the value and the expected form.
- Times are seconds, finite and above 0 (``grace`` may be 0).
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final, Literal

from guerdon._system.units import FLOAT32_MAX, LONGEST, number
from guerdon.errors import RegistrationError
from guerdon.limits import Limit

__all__ = ["LANES", "Isolation", "Lane", "Node", "OnFailure", "Options"]

Lane = Literal["process", "thread", "asyncio", "http", "native", "code", "compose"]
Isolation = Literal["worker", "call"]
Node = Literal["any"]
OnFailure = Literal["nan", "abstain", "raise"] | float

LANES: Final[tuple[Lane, ...]] = ("process", "thread", "asyncio")
BATCH_WAIT: Final = 0.005
_MOST_RETRIES: Final = 10_000
_MOST_SAMPLES: Final = 65_536
_LONGEST_BATCH_WAIT: Final = 60.0


@dataclass(frozen=True)
class Options:
    """The options given to ``reward`` and ``group_reward``, unchecked; see `guerdon.reward`."""

    name: str | None = None
    lane: str | None = None
    loop: str | None = None
    timeout: float | str | None = "default"
    grace: float = 0.5
    total_timeout: float | None = None
    setup_timeout: float = 300.0
    retries: int = 0
    limit: Limit | None = None
    on_failure: str | float = "nan"
    max_failure_rate: float | None = None
    isolation: str = "worker"
    memory_limit: int | str | None = None
    max_output: int | str | None = None
    env: Iterable[str] = ()
    node: str | None = None
    batch_size: int | None = None
    batch_wait: float = BATCH_WAIT
    rowwise: bool = False
    run_if: object = None
    otherwise: object = None
    pure: bool | None = None
    cache: object = None
    cache_version: object = None
    votes: object = 1


def _wrong(function: str, option: str, value: object, expected: str) -> RegistrationError:
    return RegistrationError(f"reward function {function!r}: {option}={value!r}: expected {expected}.")


def seconds(function: str, option: str, value: object, *, zero: bool = False) -> float:
    """A time in seconds."""
    expected = f"a number of seconds, finite and {'at least' if zero else 'above'} 0"
    found = number(value)
    if not 0 <= found < math.inf or (found == 0 and not zero):
        raise _wrong(function, option, value, expected)
    if found > LONGEST:
        raise _wrong(function, option, value, f"at most {LONGEST:.0e} s")
    return found


def timeout(function: str, value: object, default: float) -> float:
    """Seconds of one attempt; `LONGEST` for none."""
    if value is None:
        return LONGEST
    return default if value == "default" else seconds(function, "timeout", value)


def retries(function: str, value: object) -> int:
    """Attempts after the first."""
    if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value <= _MOST_RETRIES:
        raise _wrong(function, "retries", value, f"a whole number of attempts after the first, 0 to {_MOST_RETRIES}")
    return value


def lane(function: str, value: object) -> Lane | None:
    """The requested lane; None if the kind of function decides."""
    if value is None:
        return None
    if value == "http":
        raise RegistrationError(
            f"reward function {function!r}: lane='http' runs no Python functions. Make a judge with guerdon.judge(…), or call a "
            "reward service with guerdon.http_reward(url)."
        )
    if value == "native":
        raise RegistrationError(
            f"reward function {function!r}: lane='native' runs no Python functions. guerdon.rewards has those that it runs."
        )
    if value == "code":
        raise RegistrationError(
            f"reward function {function!r}: lane='code' runs the programs in completions, not functions. Make such a reward with "
            "guerdon.code_reward(…)."
        )
    for known in LANES:
        if value == known:
            return known
    raise _wrong(
        function, "lane", value, f"one of {', '.join(map(repr, LANES))}, or None for the default of the function's kind"
    )


def isolation(function: str, value: object) -> Isolation:
    """Returns the checked sharing of a worker on the process lane."""
    if value == "worker":
        return "worker"
    if value == "call":
        return "call"
    raise _wrong(function, "isolation", value, "'worker' (workers are reused) or 'call' (a fork for each call)")


def node(function: str, value: object, lane: Lane, *, live: bool) -> Node | None:
    """Returns the checked node of a function of this lane; `live`: it takes environments."""
    if value is None:
        return None
    if value != "any":
        raise _wrong(function, "node", value, "'any', or None for the driver's process (process functions: the nodes)")
    if lane == "process":
        raise RegistrationError(
            f"reward function {function!r}: node='any' is for functions of the thread and asyncio lanes, but it runs on the "
            "process lane, whose calls run on all nodes of a cluster as it is. Leave node out, or add lane='thread'."
        )
    if live:
        raise RegistrationError(
            f"reward function {function!r} takes live environments, which can't leave this process: node='any' is not "
            "possible. Leave node out."
        )
    return "any"


def on_failure(function: str, value: object) -> OnFailure:
    """Returns the checked value of a failed cell."""
    expected = "'nan', 'abstain', 'raise' or a finite number that float32 can hold"
    if value == "nan":
        return "nan"
    if value == "abstain":
        return "abstain"
    if value == "raise":
        return "raise"
    found = number(value)
    if not abs(found) <= FLOAT32_MAX:
        raise _wrong(function, "on_failure", value, expected)
    return found


def fraction(function: str, value: object) -> float | None:
    """``max_failure_rate`` of one function; None = the dispatcher's."""
    if value is None:
        return None
    found = number(value)
    if not 0 <= found <= 1:
        raise _wrong(function, "max_failure_rate", value, "a number from 0 to 1, or None for the dispatcher's")
    return found


def limit(function: str, value: object) -> Limit | None:
    """The function's limit."""
    if value is None or isinstance(value, Limit):
        return value
    raise _wrong(function, "limit", value, "a Limit, as in Limit(concurrency=64)")


def batching(function: str, size: object, wait: object) -> tuple[int | None, float]:
    """``batch_size`` and ``batch_wait``."""
    if size is not None and (isinstance(size, bool) or not isinstance(size, int) or not 1 <= size <= _MOST_SAMPLES):
        expected = f"a whole number from 1 to {_MOST_SAMPLES}, the most samples of one call, or None for one each"
        raise _wrong(function, "batch_size", size, expected)
    seconds = number(wait)
    if not 0 <= seconds <= _LONGEST_BATCH_WAIT:
        raise _wrong(function, "batch_wait", wait, f"a number of seconds from 0 to {_LONGEST_BATCH_WAIT:g}")
    if size is None and seconds != BATCH_WAIT:
        raise _wrong(function, "batch_wait", wait, "batch_size= too: without it each call takes one sample")
    return size, seconds


def flag(function: str, option: str, value: object) -> bool:
    """A bool, not just a truthy value."""
    if isinstance(value, bool):
        return value
    raise _wrong(function, option, value, "True or False")


def flag_or_none(function: str, option: str, value: object) -> bool | None:
    """A bool, or None for the default of the function's kind."""
    if value is None or isinstance(value, bool):
        return value
    raise _wrong(function, option, value, "True or False, or None for the default")


def label(function: str, option: str, value: object) -> str | None:
    """A name for metrics, files and messages."""
    if value is None:
        return None
    if not isinstance(value, str) or not value.strip() or value != value.strip() or not value.isprintable():
        raise _wrong(function, option, value, "a printable string without spaces at its ends")
    return value

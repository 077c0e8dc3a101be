"""Checking the options of a dispatcher; those of a function: `guerdon._functions.options`.

Every value is checked when it is passed, and refused with the option, the value and the expected
form.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from collections.abc import Set as AbstractSet
from typing import TYPE_CHECKING, Any, Final

from guerdon._batch.bounds import MOST_GENERATIONS, bound, patience, seconds, whole, wrong
from guerdon._functions.resource_limits import is_environment_text
from guerdon._lanes.recycling import Recycle
from guerdon._system.units import number
from guerdon.errors import RegistrationError

if TYPE_CHECKING:
    from guerdon._insight.journal.options import Journal
    from guerdon._insight.trace import Trace

__all__ = [
    "MOST_GENERATIONS",
    "MOST_WORKERS",
    "bound",
    "flag",
    "fraction",
    "incomplete",
    "journal",
    "log_metrics",
    "max_cost",
    "patience",
    "recycle",
    "seconds",
    "trace",
    "weights",
    "whole",
    "worker_env",
]

MOST_WORKERS: Final = 4096
"""More processes than any host has cores. A larger number is a mistake, which would otherwise be
noticed only after many forks."""


def weights(value: object, count: int) -> list[float] | None:
    """One finite number per entry of the list; None = all 1."""
    if value is None:
        return None
    try:
        # The keys of a dict, the order of a set and the letters of a string are not weights.
        if isinstance(value, (str, bytes, bytearray, Mapping, AbstractSet)) or not isinstance(value, Iterable):
            raise TypeError
        numbers = [float(weight) for weight in _no_texts(value)]
    except (TypeError, ValueError, OverflowError):
        raise wrong("weights", value, "a list of numbers, one per entry of the list of functions") from None
    if len(numbers) != count:
        raise RegistrationError(f"there are {len(numbers)} weights for a list of {count}: give one for each entry.")
    if not all(map(math.isfinite, numbers)):
        raise wrong("weights", numbers, "finite numbers")
    return numbers


def fraction(option: str, value: object) -> float:
    """A part of the samples."""
    found = number(value)
    if not 0 <= found <= 1:
        raise wrong(option, value, "a number from 0 to 1")
    return found


def flag(option: str, value: object) -> bool:
    """A choice between two."""
    if isinstance(value, bool):
        return value
    raise wrong(option, value, "True or False")


def incomplete(value: object) -> str:
    """Returns the checked treatment of samples on which a function failed."""
    if value == "drop" or value == "sum":
        return str(value)
    raise wrong("incomplete", value, "'drop' (the sample has no reward) or 'sum' (it has the sum of what is left)")


def log_metrics(value: object) -> str:
    """Returns the checked choice of each function's metrics for a trainer's log."""
    if value == "main" or value == "all":
        return str(value)
    raise wrong("log_metrics", value, "'main' (the six of docs/metrics.md) or 'all'")


def max_cost(value: object) -> float | None:
    """Returns the checked bound of the requests' cost; None = no limit."""
    if value is None:
        return None
    found = number(value)
    if not 0 < found < math.inf:
        raise wrong("max_cost", value, "a number above 0 in the currency of price=, or None for no limit")
    return found


def recycle(value: object) -> Recycle | None:
    """When workers are replaced."""
    if value is None or isinstance(value, Recycle):
        return value
    raise wrong("recycle", value, "a Recycle, as in Recycle(calls=1000), or None for never")


def worker_env(value: object) -> dict[str, str | None] | None:
    """Variables for all workers."""
    if value is None:
        return None
    expected = "a dict of names and strings, None for a variable to keep from workers"
    if not isinstance(value, Mapping):
        # Pairs in a list hold the values too.
        raise RegistrationError(f"worker_env is a {type(value).__name__}: expected {expected}.")
    for name, text in value.items():
        # Not the value: it may be a secret.
        if not is_environment_text(name) or not name or "=" in name:
            raise RegistrationError(f"worker_env has the name {name!r}: expected {expected}.")
        if text is not None and not is_environment_text(text):
            what = "string with a NUL or a lone surrogate" if isinstance(text, str) else type(text).__name__
            raise RegistrationError(f"worker_env[{name!r}] is a {what}: expected {expected}.")
    return dict(value)


def journal(value: object) -> Journal | None:
    """Returns the checked journal; None = nowhere."""
    if value is None:
        return None
    from guerdon._insight.journal.options import Journal

    return value if isinstance(value, Journal) else Journal(value)  # type: ignore[arg-type] # checked there


def trace(value: object) -> Trace | None:
    """Returns the checked timeline; None = nowhere."""
    if value is None:
        return None
    from guerdon._insight.trace import checked  # not by `import guerdon`

    return checked(value)


def _no_texts(values: Iterable[Any]) -> Iterable[Any]:
    for value in values:
        if isinstance(value, (str, bytes, bytearray)):
            raise TypeError
        yield value

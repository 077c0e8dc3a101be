"""Bounds after which a healthy worker of the process lane is replaced."""

from __future__ import annotations

from dataclasses import dataclass

from guerdon._system.units import EXPECTED_BYTES, LONGEST, as_bytes, number
from guerdon.errors import RegistrationError, with_known_options

__all__ = ["Recycle"]


@with_known_options
@dataclass(frozen=True)
class Recycle:
    """Bounds on the life of a worker: one that reaches any of them is replaced, between two calls
    and without a gap.

    A remedy for code that leaks memory or grows slower with time. State in a worker's modules is
    lost with it, and ``setup()`` runs again in the next. The worker of an undecorated function,
    which keeps that function's state, and the forks of ``isolation="call"`` are not recycled.

    Args:
        calls: Most calls that a worker runs, at least 1.
        age: Seconds that it lives.
        rss: Resident memory, in bytes or as a text like ``"2GB"`` or ``"512MiB"``; looked at once a
            second while it works.

    Raises:
        RegistrationError: A value is not positive, or nothing is bounded.

    Examples:
        >>> Recycle(calls=1000, rss="2GB").rss_bytes
        2000000000
    """

    calls: int | None = None
    age: float | None = None
    rss: int | str | None = None

    def __post_init__(self) -> None:
        if self.calls is None and self.age is None and self.rss is None:
            raise RegistrationError("Recycle() bounds nothing. Give calls=, age= (seconds) or rss= (bytes).")
        # The given value, of any type.
        calls: object = self.calls
        age: object = self.age
        if calls is not None and (isinstance(calls, bool) or not isinstance(calls, int) or not 1 <= calls < 1 << 63):
            raise RegistrationError(f"Recycle(calls={calls!r}): expected a whole number of calls, at least 1.")
        if age is not None and not 0 < number(age) <= LONGEST:
            raise RegistrationError(f"Recycle(age={age!r}): expected seconds, finite and above 0.")
        if self.rss is not None and not 1 <= (as_bytes(self.rss) or 0) < 1 << 63:
            raise RegistrationError(f"Recycle(rss={self.rss!r}): expected {EXPECTED_BYTES}, above 0.")

    @property
    def rss_bytes(self) -> int | None:
        """``rss`` as a number."""
        return None if self.rss is None else as_bytes(self.rss)


def native(recycle: Recycle | None) -> dict[str, float | None]:
    """Returns the form for the engine."""
    if recycle is None:
        return {"calls": None, "age": None, "rss": None}
    return {"calls": recycle.calls, "age": recycle.age, "rss": recycle.rss_bytes}

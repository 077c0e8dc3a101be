"""The policy of a reward function: its timeouts, retries, limits and what a failure counts as,
checked and complete."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from guerdon._functions import options, resource_limits
from guerdon._functions.options import Isolation, OnFailure, Options
from guerdon._functions.signature import Shape
from guerdon._system.units import LONGEST
from guerdon.limits import Limit

__all__ = ["LISTS_TIMEOUT", "MIN_JUDGED", "SAMPLE_TIMEOUT", "Policy", "checked_policy"]

SAMPLE_TIMEOUT: Final = 30.0
LISTS_TIMEOUT: Final = 600.0
MIN_JUDGED: Final = 8
"""Samples of a file for which a function was called, so that its share of failures is judged."""


@dataclass(frozen=True)
class Policy:
    """The checked policy of one function: seconds and bytes; None means none.

    ``max_failure_rate`` None means the dispatcher's.
    """

    timeout: float
    grace: float = 0.5
    total_timeout: float | None = None
    setup_timeout: float = 300.0
    retries: int = 0
    limit: Limit | None = None
    on_failure: OnFailure = "nan"
    max_failure_rate: float | None = None
    isolation: Isolation = "worker"
    memory_limit: int | None = None
    max_output: int | None = None
    env: tuple[str, ...] = ()

    @property
    def timeout_text(self) -> str:
        """The timeout of one attempt, in words."""
        return f"timeout {self.timeout:g} s" if self.timeout < LONGEST else "no timeout"

    def breach(self, name: str, failed: int, called: int, allowed: float) -> str:
        """A message if the function failed on too many samples of a file or journal; else "".

        Args:
            allowed: The dispatcher's ``max_failure_rate``.
        """
        limit = allowed if self.max_failure_rate is None else self.max_failure_rate
        found = f"too many failures: {name!r} failed on {failed} of {called} samples"
        if failed and self.on_failure == "raise":
            return f'{found}, and has on_failure="raise".'
        if called >= MIN_JUDGED and failed > limit * called:
            return f"{found}, more than the {100 * limit:.3g} % allowed (max_failure_rate)."
        return ""


def checked_policy(name: str, given: Options, shape: Shape) -> Policy:
    """The checked policy of a function of this shape, with its defaults.

    Raises:
        RegistrationError: An option is invalid.
    """
    return Policy(
        timeout=options.timeout(name, given.timeout, SAMPLE_TIMEOUT if shape == "sample" else LISTS_TIMEOUT),
        grace=options.seconds(name, "grace", given.grace, zero=True),
        total_timeout=None
        if given.total_timeout is None
        else options.seconds(name, "total_timeout", given.total_timeout),
        setup_timeout=options.seconds(name, "setup_timeout", given.setup_timeout),
        retries=options.retries(name, given.retries),
        limit=options.limit(name, given.limit),
        on_failure=options.on_failure(name, given.on_failure),
        max_failure_rate=options.fraction(name, given.max_failure_rate),
        isolation=options.isolation(name, given.isolation),
        memory_limit=resource_limits.memory_limit(name, given.memory_limit),
        max_output=resource_limits.max_output(name, given.max_output),
        env=resource_limits.environment(name, given.env),
    )

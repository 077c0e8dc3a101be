"""Comparing two runs over the same samples, to the bit."""

from __future__ import annotations

from collections.abc import Sequence

from guerdon.profile.finding import Example, excerpt
from guerdon.profile.subject import Case, Score
from guerdon.results.status import Status

__all__ = ["differences"]


def differences(
    samples: Sequence[Case], first: Sequence[Score], second: Sequence[Score], names: tuple[str, str]
) -> list[Example]:
    """An example for each sample on which the runs differ.

    Timeouts and what was not run say nothing about a function's value, and are left out.

    Args:
        names: What the two runs were, for the examples' values.
    """
    silent = (Status.TIMEOUT, Status.CANCELLED)
    return [
        Example(sample.row, excerpt(sample.completion), {names[0]: one.shown, names[1]: other.shown})
        for sample, one, other in zip(samples, first, second, strict=True)
        if not one.same(other) and one.status not in silent and other.status not in silent
    ]

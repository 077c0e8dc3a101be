"""Another time of day gives the same scores."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

from guerdon.profile.check import Check
from guerdon.profile.checks.baseline import baseline
from guerdon.profile.checks.compare import differences
from guerdon.profile.checks.threads import ended
from guerdon.profile.finding import Example, Finding
from guerdon.profile.inspection import inspect_function
from guerdon.profile.stand_in import CLOCKS
from guerdon.profile.subject import Case, Score, Subject
from guerdon.results.status import Status

__all__ = ["CHECK"]


def _run(subject: Subject) -> Iterator[Finding]:
    runs = baseline(subject)
    if not runs.steady or subject.grouped:
        return
    cases = ended(runs.samples, runs.first)
    first = [score for score in runs.first if not score.status.failed]
    found = (_moved(cases, first, inspect_function(subject, cases).get(clock, [])) for clock in CLOCKS)
    examples = next(filter(None, found), None)
    if examples:
        yield Finding(
            "clock",
            "error",
            f"{subject.name!r} scores {len(examples)} of {len(cases)} samples differently when the clock shows another time. "
            "A run could not be repeated: take times from a column, or leave them out.",
            tuple(examples),
        )


def _moved(cases: Sequence[Case], now: Sequence[Score], scores: Sequence[Score]) -> list[Example]:
    """Where a run under another clock differs; what failed there says nothing of the clock."""
    if not scores:
        return []
    later = [Score(None, Status.CANCELLED) if score.status.failed else score for score in scores[: len(cases)]]
    return differences(cases, now, later, ("now", "later"))


CHECK: Final = Check("clock", "Do scores stay when the clock shows another time?", _run)

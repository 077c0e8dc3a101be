"""Calls on several threads, or side by side on one event loop, give the same scores."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

from guerdon.profile.check import Check
from guerdon.profile.checks.baseline import baseline
from guerdon.profile.checks.compare import differences
from guerdon.profile.finding import Finding, Severity
from guerdon.profile.inspection import inspect_function
from guerdon.profile.stand_in import THREADS
from guerdon.profile.subject import Case, Score, Subject
from guerdon.results.status import Status

__all__ = ["CHECK", "ended"]


def ended(samples: Sequence[Case], scores: Sequence[Score]) -> list[Case]:
    """Those that the function scored or abstained on: no others are run outside of a timeout."""
    return [case for case, score in zip(samples, scores, strict=True) if not score.status.failed]


def _run(subject: Subject) -> Iterator[Finding]:
    runs = baseline(subject)
    if not runs.steady or subject.grouped:
        return
    cases = ended(runs.samples, runs.first)
    scores = inspect_function(subject, cases).get("threads", [])[: len(cases)]
    if not scores:
        return
    first = [score for score in runs.first if not score.status.failed]
    examples = differences(cases, first, [_silent(score) for score in scores], ("alone", "side by side"))
    if not examples:
        return
    raised = all(score.status is Status.ABSTAINED or score.same(one) for one, score in zip(first, scores, strict=True))
    lane = subject.spec.lane
    severity: Severity = "error" if lane != "process" else "info" if raised else "warning"
    side = "on one event loop" if lane == "asyncio" else f"on {THREADS} threads"
    do = "Keep what a call needs in local variables." if not raised else "Alarms work on a main thread alone."
    yield Finding(
        "threads",
        severity,
        f"{subject.name!r} {'raises on' if raised else 'scores'} {len(examples)} of {len(cases)} samples"
        f"{'' if raised else ' differently'} when calls run side by side {side}. {do} "
        + (
            "It runs in worker processes now, one call at a time: leave it there."
            if lane == "process"
            else "Or move it to lane='process'."
        ),
        tuple(examples),
    )


def _silent(score: Score) -> Score:
    """The stand-in's own failures say nothing of the function."""
    return Score(None, Status.CANCELLED) if score.status.failed else score


CHECK: Final = Check("threads", "Do scores stay when calls run side by side?", _run)

"""Requirements on scores: usable numbers, more than one of them, few ties and few Nones."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from guerdon.profile.finding import Check, Example, Finding, excerpt
from guerdon.profile.probe_runs import REFERENCE, Scored, scored_samples
from guerdon.profile.subject import Case, Score, Subject
from guerdon.results.status import Status

__all__ = ["CHECK"]

MOSTLY: Final = 0.5
LARGE: Final = 1000.0
FEWEST: Final = 8
"""Samples below which constants and shares say nothing."""


def _run(subject: Subject) -> Iterator[Finding]:
    everything = subject.once(scored_samples)
    numbers = [score.value for _, score, _ in everything if score.value is not None]
    scored = [(case, score) for case, score, note in everything if not note]
    told = [(case, score) for case, score, note in everything if note in ("", REFERENCE)]
    values = [score.value for _, score in told if score.value is not None]
    yield from _no_numbers(subject, everything)
    abstained = [(case, score) for case, score in scored if score.status is Status.ABSTAINED]
    if len(scored) >= FEWEST and len(abstained) >= MOSTLY * len(scored):
        yield Finding(
            "none",
            "warning",
            f"{subject.name!r} returns None for {len(abstained)} of {len(scored)} samples: they get no reward from it. Look "
            "whether it finds what it looks for in these completions.",
            tuple(Example(case.row, excerpt(case.completion), {"score": None}) for case, _ in abstained),
        )
    if len(values) >= FEWEST and len(set(numbers)) == 1:
        case = scored[0][0]
        yield Finding(
            "constant",
            "error",
            f"{subject.name!r} gives {values[0]:g} to everything: to {len(values)} samples and answers and to "
            f"{len(numbers) - len(values)} probes. A policy learns nothing from it.",
            (Example(case.row, excerpt(case.completion), {"score": values[0]}),),
        )
    elif len(values) >= FEWEST:
        yield _described(subject, values, told)


def _no_numbers(subject: Subject, scored: list[Scored]) -> Iterator[Finding]:
    found = [(case, score) for case, score, _ in scored if score.is_not_finite]
    if found:
        yield Finding(
            "not_finite",
            "error",
            f"{subject.name!r} returns what is no reward, on {len(found)} of {len(scored)} completions: {found[0][1].reason}. "
            "One such number poisons its group. Look for divisions by 0, logarithms and float() of a completion.",
            tuple(Example(case.row, excerpt(case.completion), {"outcome": score.shown}) for case, score in found),
        )


def _described(subject: Subject, values: list[float], scored: list[tuple[Case, Score]]) -> Finding:
    low, high = min(values), max(values)
    most = max(values.count(value) for value in set(values))
    text = (
        f"{subject.name!r} gives values from {low:g} to {high:g}, {len(set(values))} different ones in {len(values)}; the "
        f"most frequent {100 * most / len(values):.0f} % of the time."
    )
    if max(abs(low), abs(high)) > LARGE:
        far = max(scored, key=lambda pair: abs(pair[1].value or 0.0))
        return Finding(
            "range",
            "warning",
            f"{text} Beside other functions it decides alone: scale it, or give it a weight.",
            (Example(far[0].row, excerpt(far[0].completion), {"score": far[1].shown}),),
        )
    return Finding("range", "info", text)


CHECK: Final = Check("values", _run)

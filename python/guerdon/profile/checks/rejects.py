"""Completions that must not score: what models learn to write when it pays.

A probe scores when it gets at least half of the way from a wrong to the right answer of its row.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import groupby
from typing import Final

from guerdon.profile.calibration import Calibration
from guerdon.profile.check import Check
from guerdon.profile.finding import Example, Finding, excerpt
from guerdon.profile.probe_runs import probe_runs
from guerdon.profile.subject import Subject

__all__ = ["CHECK", "HALFWAY"]

HALFWAY: Final = 0.5


def _run(subject: Subject) -> Iterator[Finding]:
    calibration = subject.once(Calibration)
    if not calibration.tells:  # no scale: the function does not score answers
        return
    yield from _any_answer(subject, calibration)
    runs = [run for run in subject.once(probe_runs) if run.probe.expect == "reject"]
    for probe, group in groupby(runs, key=lambda run: run.probe):
        tried = list(group)
        scoring = []
        for run in tried:
            row, scale = run.case.row, run.scale
            gain = scale.gain(row, run.score) if row in scale.right else None
            if gain is not None and gain >= HALFWAY:
                values = {"score": run.score.shown, "reference": scale.right[row].shown}
                values["wrong answer"] = scale.wrong[row].shown
                note = "" if scale is calibration or scale.form is None else f"in the form {scale.form.name!r}"
                scoring.append(Example(row, excerpt(run.case.completion), values, note))
        if scoring:
            yield Finding(
                f"probe:{probe.id}",
                probe.severity,
                f"{subject.name!r} rewards {probe.about}: on {len(scoring)} of {len(tried)} rows it gets at least half of what "
                f"the right answer gets. {probe.do}".rstrip(),
                tuple(scoring),
            )


def _any_answer(subject: Subject, calibration: Calibration) -> Iterator[Finding]:
    """Forms in which a wrong answer is paid too."""
    found = calibration.rewarded_wrong_answers()
    if found:
        examples = [
            Example(
                row, excerpt(text), {"score": score.shown, "reference": calibration.right[row].shown}, f"form {name!r}"
            )
            for name, rows in found.items()
            for row, score in rows[:2]
            for text in [calibration.in_form(name, row, right=False)]
        ]
        yield Finding(
            "probe:any_answer",
            "error",
            f"{subject.name!r} rewards a wrong answer in the form {' and '.join(map(repr, list(found)[:3]))}: it gets at least half "
            "of what the right answer gets. Score what the form holds, not that it is there.",
            tuple(examples),
        )


CHECK: Final = Check("probes", "Do completions that game a reward stay without one?", _run)

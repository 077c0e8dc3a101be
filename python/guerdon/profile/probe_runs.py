"""Samples that several checks read, scored once for all: completions of the rows, reference answers
and probes."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from guerdon.profile.calibration import Calibration, material, spread
from guerdon.profile.forms import FORMS, as_number
from guerdon.profile.probes import Probe, completion_of, default_probes
from guerdon.profile.samples import text_of
from guerdon.profile.subject import Case, Score, Subject

__all__ = ["REFERENCE", "ProbeRun", "Scored", "probe_runs", "scored_samples"]

ROWS: Final = 12
"""Rows on which a completion that must not score is tried."""

STRESS_ROWS: Final = 2
"""Rows on which a completion that must be survived is tried: a hang costs a timeout."""


REFERENCE: Final = "the reference answer"

Scored = tuple[Case, Score, str]
"""A sample, its outcome, and what the sample is: the id of a probe, `REFERENCE`, or empty for
completions of the rows or references in their place."""


@dataclass(frozen=True)
class ProbeRun:
    """One probe on one row, with its outcome and the scale of that row."""

    probe: Probe
    case: Case
    score: Score
    scale: Calibration


def scored_samples(subject: Subject) -> list[Scored]:
    """The subject's material, reference answers and probes: for `Subject.once`."""
    cases, calibration = material(subject), subject.once(Calibration)
    scores = subject.score(cases, group=subject.group_size)
    found = [(case, score, "") for case, score in zip(cases, scores, strict=True)]
    found += [(Case(row, calibration.right_text(row)), score, REFERENCE) for row, score in calibration.right.items()]
    return found + [(run.case, run.score, run.probe.id) for run in subject.once(probe_runs)]


def probe_runs(subject: Subject) -> list[ProbeRun]:
    """Every probe of the subject, on the rows that have its columns: for `Subject.once`."""
    calibration = subject.once(Calibration)
    rows = calibration.usable or list(calibration.answers) or list(range(len(subject.rows)))
    probes = default_probes() if subject.probes is None else subject.probes
    strict = _strict_rows(calibration, rows) if any("strict" in probe.needs for probe in probes) else set()
    reasoning = _reasons(calibration)
    planned: dict[str, list[tuple[Probe, Case, Calibration]]] = {"reject": [], "survive": []}
    for probe in probes:
        most = ROWS if probe.expect == "reject" and calibration.tells else STRESS_ROWS
        chosen = []
        for row in rows:
            if ("strict" in probe.needs and row not in strict) or ("reasoning" in probe.needs and not reasoning):
                continue
            if (
                "number" in probe.needs
                and as_number(calibration.answers[row].final if row in calibration.answers else "") is None
            ):
                continue
            text = completion_of(probe, row, calibration)
            if calibration.programs and probe.expect == "reject" and _holds_the_answer(calibration, row, text):
                continue  # a right program is right, whatever text stands around it
            if text is not None:
                chosen.append((probe, Case(row, subject.completion(text)), calibration))
        planned[probe.expect] += [chosen[place] for place in spread(range(len(chosen)), most)]
        if probe.expect == "reject" and probe.in_forms and not probe.needs and not calibration.programs:
            planned["reject"] += _in_other_forms(probe, calibration)
    return [
        ProbeRun(probe, case, score, scale)
        for expect in ("reject", "survive")
        for (probe, case, scale), score in zip(
            planned[expect],
            calibration.scores([case for _, case, _ in planned[expect]]),
            strict=True,
        )
    ]


def _in_other_forms(probe: Probe, calibration: Calibration) -> Iterator[tuple[Probe, Case, Calibration]]:
    """The probe on one row in each other form in which references score."""
    for scale in calibration.others():
        texts = ((row, completion_of(probe, row, scale)) for row in scale.usable)
        first = next(((row, text) for row, text in texts if text is not None), None)
        if first is not None:
            yield probe, Case(first[0], calibration.subject.completion(first[1])), scale


def _holds_the_answer(calibration: Calibration, row: int, text: str | None) -> bool:
    return text is not None and row in calibration.answers and calibration.answers[row].final in text


def _strict_rows(calibration: Calibration, rows: list[int]) -> set[int]:
    """Rows on which the bare answer does not score: the function asks for a form."""
    if not calibration.tells:
        return set()
    subject = calibration.subject
    bare = [Case(row, subject.completion(FORMS[0].render(calibration.answers[row].final))) for row in rows]
    scores = calibration.scores(bare)
    return {row for row, score in zip(rows, scores, strict=True) if not calibration.pays(row, score)}


def _reasons(calibration: Calibration) -> bool:
    """Returns whether completions have a part for reasoning: the form has, or the rows' own."""
    if calibration.form is not None and calibration.form.reasons:
        return True
    return any("<think>" in text_of(case.completion) for case in calibration.subject.samples()[:ROWS])

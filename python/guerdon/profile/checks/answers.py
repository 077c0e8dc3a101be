"""Scores of a function for answers: right ones, wrong ones, none, and those that game a reward."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from itertools import groupby
from typing import Final

from guerdon.profile.calibration import Calibration, spread
from guerdon.profile.finding import Check, Example, Finding, excerpt, first_line
from guerdon.profile.forms import FORMS
from guerdon.profile.probe_runs import probe_runs
from guerdon.profile.subject import Case, Subject

__all__ = ["FORMAT", "MISSING_REFERENCE", "PROBES", "REFERENCE"]


def _reference(subject: Subject) -> Iterator[Finding]:
    calibration = subject.once(Calibration)
    if not calibration.asks and not (calibration.programs and calibration.answers):
        return
    if not calibration.answers:
        yield Finding(
            "reference", "warning", f"column {calibration.column!r} has no value in any row: nothing to check."
        )
        return
    if any(not score.ran for score in calibration.right.values()):
        return  # it hangs: another check says so
    failing = [row for row in calibration.right if row not in set(calibration.usable)]
    if not calibration.usable:
        yield _never(subject, calibration)
        return
    best = calibration.form
    used = Counter(calibration.forms[row].name for row in calibration.usable)
    if failing:
        yield Finding(
            "reference",
            "error",
            f"{subject.name!r} gives the reference answer of {len(failing)} of {len(calibration.right)} rows no more than a "
            f"wrong answer, in no form; in the form {best.name if best else '?'!r} that of {used.total()} rows scores. Look at "
            "what these references have in common (commas, units, LaTeX, case, white space), and read reference and completion "
            "in the same way.",
            tuple(_example(calibration, row) for row in failing),
        )
    others = [row for row in calibration.usable if calibration.forms[row] is not best]
    if others and best is not None:
        yield Finding(
            "reference:form",
            "warning",
            f"{subject.name!r} takes {best.name!r} for the final answer of {len(calibration.usable) - len(others)} rows, but for "
            f"that of {len(others)} only another form scores. Read all answers in the same forms.",
            tuple(_example(calibration, row, calibration.forms[row].name) for row in others),
        )
    elif best is not None and not failing:
        yield Finding(
            "reference:form",
            "info",
            f"all {len(calibration.right)} references scored, in the form {best.name!r}: {best.template!r}.",
        )


def _never(subject: Subject, calibration: Calibration) -> Finding:
    errors = [score for score in calibration.right.values() if score.status.failed]
    rows = list(calibration.right)[:5]
    if errors and len(errors) == len(calibration.right):
        message = (
            f"{subject.name!r} fails on every reference answer: {first_line(str(errors[0].shown))}. Mend that first."
        )
    elif calibration.noise > 0:
        message = (
            f"{subject.name!r} scores the same completion differently each time, by up to {calibration.noise:g}: right and wrong "
            "answers can't be told apart."
        )
    elif subject.spec.factory is not None:
        message = (
            f"{subject.name!r} gives no reference answer in the column {calibration.column!r} more than a wrong one, in any form. "
            f"Look at the form of these answers, and whether it is the column that {subject.spec.factory.short()[:-2]} compares with; "
            "--reference gives a completion that must score."
        )
    elif all(calibration.right[row].shown == calibration.wrong[row].shown for row in calibration.right):
        message = (
            f"{subject.name!r} takes {calibration.column!r}, but gives right and wrong answers the same score, in any form: "
            "it scores the form alone, or it does not know the form of these answers. Give the form with a reference "
            "template, or leave the column out of its parameters."
        )
    else:
        message = (
            f"{subject.name!r} gives no reference answer more than a wrong one, in any form. If answers have a form of their "
            "own, give it as reference template; else look at the alignment of completions and references."
        )
    return Finding("reference", "error", message, tuple(_example(calibration, row) for row in rows))


def _example(calibration: Calibration, row: int, note: str = "") -> Example:
    values = {"reference": calibration.right[row].shown, "wrong answer": calibration.wrong[row].shown}
    return Example(row, excerpt(calibration.right_text(row)), values, note and f"in the form {note!r}")


EMPTIED_ROWS: Final = 6


def _missing_reference(subject: Subject) -> Iterator[Finding]:
    calibration = subject.once(Calibration)
    column = calibration.column
    if subject.grouped or not calibration.asks or not calibration.usable or column is None:
        return
    rows = spread(calibration.usable, EMPTIED_ROWS)
    wrong = [(row, calibration.wrong_text(row), nothing) for row in rows for nothing in (None, "")]
    if examples := _paid_without(subject, calibration, wrong):
        yield Finding(
            "missing_reference",
            "error" if calibration.missing else "warning",
            f"{subject.name!r} rewards a wrong answer where the row has no {column!r}; {_rows_without(calibration)}. Return None "
            "there: no opinion.",
            examples,
        )
    texts = dict.fromkeys(("", "I don't know.", calibration.rendered(rows[0], "") or ""))
    if examples := _paid_without(subject, calibration, [(row, text, "") for row in rows[:2] for text in texts]):
        yield Finding(
            "empty_reference",
            "error" if calibration.missing else "info",
            f"{subject.name!r} takes an empty completion for right where {column!r} is empty; {_rows_without(calibration)}. "
            "Return None where there is no reference.",
            examples,
        )


def _paid_without(
    subject: Subject, calibration: Calibration, tried: list[tuple[int, str, str | None]]
) -> tuple[Example, ...]:
    """Examples of completions that are paid where the reference is taken away: row, text, and the
    value in its place."""
    assert calibration.column is not None
    cases = [Case(row, subject.completion(text), {calibration.column: nothing}) for row, text, nothing in tried]
    return tuple(
        Example(
            case.row,
            excerpt(case.completion),
            {"score": score.shown, "wrong answer, with the reference": calibration.wrong[case.row].shown},
            f"{calibration.column}={case.columns[calibration.column]!r}",
        )
        for case, score in zip(cases, calibration.scores(cases), strict=True)
        if calibration.pays(case.row, score)
    )


def _rows_without(calibration: Calibration) -> str:
    missing = ", ".join(map(str, calibration.missing[:5]))
    return f"rows {missing} have none" if missing else "every row here has one"


def _probes(subject: Subject) -> Iterator[Finding]:
    """A probe scores when it gets at least half of the way from a wrong to the right answer."""
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
            if scale.pays(row, run.score):
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
                row,
                excerpt(calibration.wrong_in(name, row)),
                {"score": score.shown, "reference": calibration.right[row].shown},
                f"form {name!r}",
            )
            for name, rows in found.items()
            for row, score in rows[:2]
        ]
        yield Finding(
            "probe:any_answer",
            "error",
            f"{subject.name!r} rewards a wrong answer in the form {' and '.join(map(repr, list(found)[:3]))}: it gets at least half "
            "of what the right answer gets. Score what the form holds, not that it is there.",
            tuple(examples),
        )


ANSWER: Final = "42"
PLAIN: Final = "bare"


def _format(subject: Subject) -> Iterator[Finding]:
    """Only of functions that take no reference; of others the form is part of a probe."""
    calibration = subject.once(Calibration)
    if calibration.asks or subject.grouped:
        return
    whole = {form.name: form for form in FORMS if form.name != "as given"}
    cases = [Case(0, subject.completion(form.render(ANSWER))) for form in whole.values()]
    scores = dict(zip(whole, subject.score(cases, variant=calibration.variant), strict=True))
    plain = scores[PLAIN].value
    if plain is None:
        return
    best = max((score.value for score in scores.values() if score.value is not None), default=plain)
    # One that scores short texts or none at all tells no forms apart.
    liked = [form for form in whole.values() if scores[form.name].value == best and form.closer and best > plain]
    broken = []
    for form in liked:
        text = form.render(ANSWER)
        broken.append((form, text[: text.rfind(form.closer)].rstrip()))
    if not broken:
        return
    found = subject.score([Case(0, subject.completion(text)) for _, text in broken], variant=calibration.variant)
    examples = [
        Example(0, excerpt(text), {"unfinished": score.shown, "whole": best, "plain": plain}, form.name)
        for (form, text), score in zip(broken, found, strict=True)
        if score.ok and score.value is not None and score.value >= best
    ]
    if examples and len(examples) == len(liked):
        yield Finding(
            "format",
            "warning",
            f"{subject.name!r} gives a form that never ends as much as a whole one. Match the whole completion "
            "(re.fullmatch), closing tag or brace included.",
            tuple(examples),
        )


REFERENCE: Final = Check("reference", _reference)
MISSING_REFERENCE: Final = Check("missing_reference", _missing_reference)
PROBES: Final = Check("probes", _probes)
FORMAT: Final = Check("format", _format)

"""The reference answer of each row scores, in one of the usual forms."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import Final

from guerdon.profile.calibration import Calibration, above
from guerdon.profile.check import Check
from guerdon.profile.finding import Example, Finding, excerpt, first_line
from guerdon.profile.subject import Subject

__all__ = ["CHECK"]


def _run(subject: Subject) -> Iterator[Finding]:
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
    elif all(not above(calibration.wrong[row], calibration.right[row]) for row in calibration.right) and all(
        calibration.right[row].shown == calibration.wrong[row].shown for row in calibration.right
    ):
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


CHECK: Final = Check("reference", "Does each row's reference answer score, and more than a wrong one?", _run)

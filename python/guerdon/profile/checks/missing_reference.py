"""A row without a reference gives no full marks, nor does an empty answer to an empty one."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from guerdon.profile.calibration import Calibration, spread
from guerdon.profile.check import Check
from guerdon.profile.finding import Example, Finding, excerpt
from guerdon.profile.subject import Case, Subject

__all__ = ["CHECK"]

ROWS: Final = 6


def _run(subject: Subject) -> Iterator[Finding]:
    calibration = subject.once(Calibration)
    if subject.grouped or not calibration.asks or not calibration.usable or calibration.column is None:
        return
    rows = spread(calibration.usable, ROWS)
    yield from _missing(subject, calibration, rows)
    yield from _empty(subject, calibration, rows)


def _missing(subject: Subject, calibration: Calibration, rows: list[int]) -> Iterator[Finding]:
    """Wrong answers, with the reference taken away."""
    assert calibration.column is not None
    cases = [
        Case(row, subject.completion(calibration.wrong_text(row)), {calibration.column: nothing})
        for row in rows
        for nothing in (None, "")
    ]
    scores = calibration.scores(cases)
    examples = [
        Example(
            case.row,
            excerpt(case.completion),
            {"score": score.shown, "with the reference": calibration.wrong[case.row].shown},
            f"{calibration.column}={case.columns[calibration.column]!r}",
        )
        for case, score in zip(cases, scores, strict=True)
        if _rewarded(calibration, case.row, score)
    ]
    if examples:
        rows_without = calibration.missing
        yield Finding(
            "missing_reference",
            "error" if rows_without else "warning",
            f"{subject.name!r} rewards a wrong answer where the row has no {calibration.column!r}"
            + (
                f"; rows {', '.join(map(str, rows_without[:5]))} have none"
                if rows_without
                else "; every row here has one"
            )
            + ". Return None there: no opinion.",
            tuple(examples),
        )


def _empty(subject: Subject, calibration: Calibration, rows: list[int]) -> Iterator[Finding]:
    """Completions without an answer, to an empty reference."""
    assert calibration.column is not None
    column = calibration.column
    texts = dict.fromkeys(("", "I don't know.", calibration.rendered(rows[0], "") or ""))
    cases = [Case(row, subject.completion(text), {column: ""}) for row in rows[:2] for text in texts]
    scores = calibration.scores(cases)
    examples = [
        Example(case.row, excerpt(case.completion), {"score": score.shown}, f"{column}=''")
        for case, score in zip(cases, scores, strict=True)
        if _rewarded(calibration, case.row, score)
    ]
    if examples:
        without = calibration.missing
        yield Finding(
            "empty_reference",
            "error" if without else "info",
            f"{subject.name!r} takes an empty completion for right where {column!r} is empty"
            + (f", as in rows {', '.join(map(str, without[:5]))}" if without else "; no row here has an empty one")
            + ". Return None where there is no reference.",
            tuple(examples),
        )


def _rewarded(calibration: Calibration, row: int, score: object) -> bool:
    gain = calibration.gain(row, score)  # type: ignore[arg-type]
    return gain is not None and gain >= 0.5


CHECK: Final = Check("missing_reference", "Does a row without a reference stay without a reward?", _run)

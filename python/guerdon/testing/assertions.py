"""Assertions on reward functions: each runs some of the checks of `guerdon.profile`.

All take a function, decorated or plain, and rows: mappings with ``prompt``, the columns that the
function asks for and, where there are any, ``completion``. They fail with the findings, which name
the rows. The function runs in worker processes: one that hangs or crashes fails the assertion.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Sequence
from pathlib import Path

from guerdon.errors import DataError
from guerdon.profile.calibration import Calibration
from guerdon.profile.checks import CHECKS
from guerdon.profile.checks.stability import Runs
from guerdon.profile.finding import Finding, counted, excerpt
from guerdon.profile.probe_runs import scored_samples
from guerdon.profile.probes import Probe, default_probes, load_probes
from guerdon.profile.subject import Case, Row, Score, Subject

__tracebackhide__ = True  # pytest shows the test's own lines only

__all__ = [
    "assert_bounded",
    "assert_deterministic",
    "assert_reference_scores",
    "assert_rejects",
    "assert_row_independent",
]


def assert_deterministic(function: object, rows: Sequence[Row], *, timeout: float | None = None) -> None:
    """The same samples get the same scores, to the bit: twice, in other processes with other hash
    seeds, and at another time.

    Args:
        function: Decorated or plain.
        rows: On which it is run; at most 64 samples of them.
        timeout: Seconds of one call. Default: the function's own, at most 10 for sync ones.

    Raises:
        AssertionError: They don't, or no call gives a score; the message names the rows, and both
            values.
        DataError: The rows are not mappings, or lack a column that the function asks for.

    Examples:
        >>> from guerdon import reward
        >>> assert_deterministic(reward(lambda text: float(len(text)), name="length"), [{"completion": "abc"}])
    """
    _check(function, rows, ("repeat", "process", "clock"), timeout)


def assert_row_independent(function: object, rows: Sequence[Row], *, timeout: float | None = None) -> None:
    """A sample's score depends on its own row alone: not on order, batch or calls side by side.

    For a function of groups, whole groups change their places.

    Args:
        function: As for `assert_deterministic`.
        rows: Likewise.
        timeout: Likewise.

    Raises:
        AssertionError, DataError: As for `assert_deterministic`.

    Examples:
        >>> from guerdon import reward
        >>> length = reward(lambda text: float(len(text)), name="length")
        >>> assert_row_independent(length, [{"completion": "abc"}, {"completion": "d"}])
    """
    _check(function, rows, ("order", "batch", "threads"), timeout)


def assert_bounded(
    function: object,
    rows: Sequence[Row],
    *,
    low: float = -math.inf,
    high: float = math.inf,
    timeout: float | None = None,
) -> None:
    """Every score is in a range, and every call ends: on the rows' completions, right and wrong
    answers, and all probes.

    Args:
        function: As for `assert_deterministic`.
        rows: Likewise.
        timeout: Likewise.
        low: The least score.
        high: The greatest.

    Raises:
        AssertionError: A score is outside, or a call failed; the message names row and completion.

    Examples:
        >>> from guerdon import reward
        >>> brevity = reward(lambda text: 1 / (1 + len(text)), name="brevity")
        >>> assert_bounded(brevity, [{"completion": "abc"}], low=0.0, high=1.0)
    """
    with Subject(function, rows, timeout=timeout) as subject:
        for case, score, _ in subject.once(scored_samples):
            if score.status.failed and score.ran:
                raise _no_score(subject, case, score)
            if score.value is not None and not low <= score.value <= high:
                where = f"row {case.row}, {excerpt(case.completion)!r}"
                raise AssertionError(
                    f"{subject.name!r} gives {score.value:g} on {where}: not within {low:g} to {high:g}."
                )
        _ended(subject)  # what was not run any more, after a few hangs


def assert_reference_scores(
    function: object,
    rows: Sequence[Row],
    *,
    reference: str | None = None,
    answer: str | None = None,
    timeout: float | None = None,
) -> None:
    """Each row's reference answer scores, and more than a wrong one.

    Args:
        function: As for `assert_deterministic`.
        rows: Likewise.
        timeout: Likewise.
        reference: Template of the completion, with columns in braces: ``"#### {answer}"``. Default:
            the usual forms, of which one must score.
        answer: The column of answers. Default: ``answer``, ``solution`` or another usual name.

    Raises:
        AssertionError: Some do not, or the function uses no reference; the message names the rows
            and the completions tried.
        DataError: There is no such column.

    Examples:
        >>> from guerdon import reward
        >>> exact = reward(lambda completion, answer: float(completion == answer), name="exact")
        >>> assert_reference_scores(exact, [{"answer": "4"}, {"answer": "Oslo"}])
    """
    with Subject(function, rows, timeout=timeout, reference=reference, answer=answer) as subject:
        calibration = subject.once(Calibration)
        if calibration.column is None:
            raise DataError("the rows have no column of right answers: name it, answer='…'.")
        if not calibration.asks:
            raise AssertionError(
                f"{subject.name!r} does not use the column {calibration.column!r}: no score depends on the reference. If it "
                "reads another column, name that one, answer='…'."
            )
        _ended(subject)
        _fail(_findings(subject, ("reference",)))


def assert_rejects(
    function: object,
    rows: Sequence[Row],
    *,
    probes: Collection[str] | str | Path | None = None,
    reference: str | None = None,
    answer: str | None = None,
    timeout: float | None = None,
) -> None:
    """Completions that game a reward get less than halfway from a wrong to the right answer, and
    rows without a reference reward none.

    Args:
        function: As for `assert_deterministic`.
        rows: Likewise.
        timeout: Likewise.
        probes: Ids of the probes to try, or the path of a JSON file with more. Default: all of
            `guerdon profile`.
        reference: As for `assert_reference_scores`.
        answer: Likewise.

    Raises:
        AssertionError: One is rewarded, or no reference is, so that nothing can be compared; the
            message names the rows, and the scores.
        DataError: There is no such probe.

    Examples:
        >>> from guerdon import reward
        >>> substring = reward(lambda completion, answer: float(answer in completion), name="substring")
        >>> assert_rejects(substring, [{"answer": "Oslo"}, {"answer": "Rome"}], probes=["empty", "refusal"])
    """
    chosen = None if probes is None else _chosen(probes)
    with Subject(function, rows, timeout=timeout, reference=reference, answer=answer, probes=chosen) as subject:
        tells = subject.once(Calibration).tells
        _ended(subject)
        if not tells:
            found = _findings(subject, ("reference",))
            _fail(found)
            raise AssertionError(
                f"{subject.name!r} gives no reference answer more than a wrong one, so nothing tells a reward from none. Give "
                "the column of answers and, where answers have a form of their own, reference='…{answer}…'."
            )
        ids = ("probes",) if probes is not None else ("missing_reference", "probes")
        found = _findings(subject, ids)
        _ended(subject)
        _fail(found)


def _chosen(probes: Collection[str] | str | Path) -> tuple[Probe, ...]:
    known = {probe.id: probe for probe in default_probes()}
    if isinstance(probes, str) and probes in known and not Path(probes).exists():
        raise DataError(f"probes={probes!r} is the path of a file. To try the probe of that name: probes=[{probes!r}].")
    if isinstance(probes, (str, Path)):
        return load_probes(probes)
    if not probes:
        raise DataError("probes= names none: leave it out to try all.")
    unknown = [name for name in probes if name not in known]
    if unknown:
        raise DataError(f"there is no probe {unknown[0]!r}. There are: {', '.join(known)}.")
    return tuple(known[name] for name in probes)


def _check(function: object, rows: Sequence[Row], ids: Collection[str], timeout: float | None) -> None:
    with Subject(function, rows, timeout=timeout) as subject:
        found = _findings(subject, ids)
        _ended(subject)
        _fail(found)
        _compared(subject)


def _ended(subject: Subject) -> None:
    """Fails where a call hung, or killed its worker: what it would have scored nobody knows."""
    for case, score in subject.hanging:
        raise _no_score(subject, case, score)


def _compared(subject: Subject) -> None:
    """Fails where no call gave a score, so that nothing was compared."""
    runs = subject.once(Runs)
    if all(score.status.failed for score in runs.first):
        raise _no_score(subject, runs.samples[0], runs.first[0])


def _no_score(subject: Subject, case: Case, score: Score) -> AssertionError:
    where = f"row {case.row}, {excerpt(case.completion)!r}"
    return AssertionError(f"{subject.name!r} gives no score on {where}: {score.shown}")


def _findings(subject: Subject, ids: Collection[str]) -> list[Finding]:
    return counted(finding for check in CHECKS if check.id in ids for finding in check.run(subject))


def _fail(findings: Iterable[Finding]) -> None:
    text = "\n".join(map(str, findings))
    if text:
        raise AssertionError(text)

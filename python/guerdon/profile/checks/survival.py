"""Inputs that hang, kill a worker or raise: on the rows' own completions, on answers, on probes."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from guerdon.profile.calibration import Calibration, material
from guerdon.profile.finding import Check, Example, Finding, Severity, excerpt, first_line
from guerdon.profile.probe_runs import probe_runs
from guerdon.profile.subject import Case, Score, Subject
from guerdon.results.status import Status

__all__ = ["CHECK"]

_DO: Final = {
    Status.TIMEOUT: "Bound what it computes and the length of what it parses, and set `timeout` so low that a step can bear "
    "it; a worker that passes it is killed.",
    Status.ERROR: "Each costs its sample the reward (NaN). Where the completion is at fault, catch that exception alone and "
    "return 0; what else fails had better stay a failure.",
}
# Of a function that comes with Guerdon.
_DO_OF_FACTORY: Final = "Each costs its sample the reward (NaN), and counts as a failure: mend what the reason names."
# Causes of a worker's end, by a part of the reason; the first that is found.
_CRASHES: Final = (
    ("exited with status", "Look for sys.exit, os._exit and quit() in what it calls, and return instead."),
    ("SIGKILL", "The kernel kills what takes too much memory: look at that first, then for os.kill."),
    ("SIGABRT", "C code gave up: look for its message above, for memory that it did not get, and for os.abort."),
    ("SIGSEGV", "C code broke: look for recursion in C, and at the versions of its libraries."),
    ("SIGBUS", "C code broke: look for files that shrink while they are mapped, and for full disks."),
    ("was killed by", "Look for who sends that signal: os.kill, os.killpg or a child process."),
)
_ANY_CRASH: Final = "Look for what ends its process."
_WHAT: Final = {Status.TIMEOUT: "does not end", Status.CRASHED: "kills its worker", Status.ERROR: "raises"}
_IDS: Final = {Status.TIMEOUT: "hang", Status.CRASHED: "crash", Status.ERROR: "exception"}


def _run(subject: Subject) -> Iterator[Finding]:
    calibration = subject.once(Calibration)
    cases = material(subject)
    scored: list[tuple[Case, Score, str]] = [
        (case, score, "") for case, score in zip(cases, subject.score(cases, group=subject.group_size), strict=True)
    ]
    for row, score in calibration.right.items():
        scored.append((Case(row, calibration.right_text(row)), score, "the reference answer"))
    scored += [(run.case, run.score, run.probe.id) for run in subject.once(probe_runs)]
    seen = {(case.row, str(case.completion)) for case, _, _ in scored}
    scored += [(case, score, "") for case, score in subject.hanging if (case.row, str(case.completion)) not in seen]
    for status, check in _IDS.items():
        found = [(case, score, note) for case, score, note in scored if score.status is status]
        if not found:
            continue
        ordinary = sum(1 for _, _, note in found if not note)
        severity: Severity = "error" if status is not Status.ERROR or ordinary else "warning"
        kinds = dict.fromkeys(note for _, _, note in found if note)
        where = f"{len(found)} of {len(scored)} completions" + (
            f", among them {', '.join(list(kinds)[:4])}" if kinds else ""
        )
        yield Finding(
            check,
            severity,
            f"{subject.name!r} {_WHAT[status]} on {where}: {_reason(found[0][1])}. {_advice(subject, status, found[0][1].reason)}",
            tuple(
                Example(case.row, excerpt(case.completion), {"outcome": score.shown}, note)
                for case, score, note in _first_of_each(found)
            ),
        )


def _reason(score: Score) -> str:
    return first_line(score.reason) or score.status.label


def _advice(subject: Subject, status: Status, reason: str) -> str:
    """Returns the advice on it."""
    if status is Status.ERROR and subject.spec.factory is not None:
        return _DO_OF_FACTORY
    if status is not Status.CRASHED:
        return _DO[status]
    what = next((text for part, text in _CRASHES if part in reason), _ANY_CRASH)
    return f"{what} Meanwhile lane='process' keeps it from the trainer."


def _first_of_each(found: list[tuple[Case, Score, str]]) -> list[tuple[Case, Score, str]]:
    """One of each kind first, so that the examples differ."""
    first: dict[str, tuple[Case, Score, str]] = {}
    for each in found:
        first.setdefault(each[2], each)
    return [*first.values(), *(each for each in found if each not in first.values())]


CHECK: Final = Check("survival", _run)

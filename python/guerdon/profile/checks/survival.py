"""Inputs that hang, kill a worker or raise: on the rows' own completions, on answers, on probes."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

from guerdon.profile.finding import Check, Example, Finding, Severity, excerpt, first_line
from guerdon.profile.probe_runs import Scored, scored_samples
from guerdon.profile.subject import Score, Subject
from guerdon.results.status import Status

__all__ = ["CHECK", "failures"]

_DO: Final = {
    "hang": "Bound what it computes and the length of what it parses, and set `timeout` so low that a step can bear "
    "it; a worker that passes it is killed.",
    "exception": "Each costs its sample the reward (NaN). Where the completion is at fault, catch that exception alone and "
    "return 0; what else fails had better stay a failure.",
    "memory": "Bound what it builds of a completion, or allow it more: `memory_limit`, and --memory-limit here.",
    "output": "Print less: what is beyond `max_output` ends the call.",
}
# The advice for a function that comes with Guerdon.
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
_WHAT: Final = {
    "hang": "does not end",
    "crash": "kills its worker",
    "exception": "raises",
    "memory": "wants more memory than it may have",
    "output": "prints more than it may",
}


def _run(subject: Subject) -> Iterator[Finding]:
    scored = list(subject.once(scored_samples))
    seen = {(case.row, str(case.completion)) for case, score, _ in scored if score.ran}
    others = {(case.row, str(case.completion)): (case, score) for case, score in (*subject.hanging, *subject.failing)}
    scored += [(*each, "") for key, each in others.items() if key not in seen]
    yield from failures(subject, scored, len(scored))


def failures(subject: Subject, scored: Sequence[Scored], count: int) -> Iterator[Finding]:
    """Yields a finding for each way in which the function failed on these samples, of so many."""
    by_kind: dict[str, list[Scored]] = {}
    for one in scored:
        by_kind.setdefault(_kind(one[1]), []).append(one)
    for check, what in _WHAT.items():
        found = by_kind.get(check, [])
        if not found:
            continue
        ordinary = sum(1 for _, _, note in found if not note)
        severity: Severity = "error" if check in ("hang", "crash", "memory") or ordinary else "warning"
        kinds = dict.fromkeys(note for _, _, note in found if note)
        where = f"{len(found)} of {count} completions" + (f", among them {', '.join(list(kinds)[:4])}" if kinds else "")
        yield Finding(
            check,
            "warning" if check == "output" else severity,
            f"{subject.name!r} {what} on {where}: {_reason(found[0][1])}. {_advice(subject, check, found[0][1].reason)}",
            tuple(
                Example(case.row, excerpt(case.completion), {"outcome": score.shown}, note)
                for case, score, note in _first_of_each(found)
            ),
        )


def _kind(score: Score) -> str:
    """Returns the check that reports this outcome; empty if the function did not fail."""
    if score.lacks_memory:
        return "memory"
    if score.is_flood:
        return "output"
    return {Status.TIMEOUT: "hang", Status.CRASHED: "crash", Status.ERROR: "exception"}.get(score.status, "")


def _reason(score: Score) -> str:
    return first_line(score.reason) or score.status.label


def _advice(subject: Subject, check: str, reason: str) -> str:
    """Returns the advice on it."""
    if check == "exception" and subject.spec.factory is not None:
        return _DO_OF_FACTORY
    if check != "crash":
        return _DO[check]
    what = next((text for part, text in _CRASHES if part in reason), _ANY_CRASH)
    return f"{what} Meanwhile lane='process' keeps it from the trainer."


def _first_of_each(found: list[Scored]) -> list[Scored]:
    """Puts one of each kind first, so that the examples differ."""
    first: dict[str, Scored] = {}
    for each in found:
        first.setdefault(each[2], each)
    return [*first.values(), *(each for each in found if each not in first.values())]


CHECK: Final = Check("survival", _run)

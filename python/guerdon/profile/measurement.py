"""Costs of one reward function: time, CPU, the interpreter's lock, memory; and on which rows it
hangs, crashes or fails.

- Times are of calls that no measuring disturbs; CPU, lock and memory come from a second run of some
  of the rows (`MeasuredFunction`).
- After a few hangs, or at the subject's deadline, what was not run yet stays unmeasured, and is
  counted.
"""

from __future__ import annotations

import json
import os
import secrets
import shutil
import tempfile
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Final

import numpy as np

from guerdon._functions.build import spec_of
from guerdon._system.cpu_count import usable_cores
from guerdon.dispatcher import Dispatcher
from guerdon.profile.measured import AT_ONCE, AsyncMeasuredFunction, AtOnce, MeasuredFunction, nothing
from guerdon.profile.subject import Case, ListedSpec, OutOfTime, Score, Subject
from guerdon.results.status import Status

__all__ = ["Measurement", "empty_worker_bytes", "measure"]

_MOST_HANGS: Final = 3
_CHUNK: Final = 16
_WATCHED_ROWS: Final = 64
_FIRST_ROWS: Final = 4
_FIRST_SHARE: Final = 0.25
_WATCHED_S: Final = 0.3
_MOST_REPEATS: Final = 2000
_WAITING_WORKERS: Final = 8
_SLOW_S: Final = 0.5
_BLOCKS_S: Final = 0.005
_AS_LONG: Final = 0.7
_LONG: Final = (1_000, 4_000, 16_000, 64_000)
_FILLER: Final = "Let me think about this step by step and check it again. "


@dataclass
class Measurement:
    """Measured costs; times in seconds, sizes in bytes.

    Attributes:
        calls: What one call scores: ``"sample"``, ``"group"`` or ``"batch"``.
        rows_of_call: Rows of a measured call of a batch function.
        seconds: Run time of each row that was scored (of a group or batch function, of its call).
        answered: Rows that it scored or abstained on.
        unmeasured: Rows that were not run, because time was up or too many hung.
        failures: Samples on which the function failed.
        cpu_s: CPU seconds a second of run time, processes that it started included; None if
            nothing was measured.
        worker_bytes, empty_bytes: Resident memory of a worker after the calls, and of an empty one.
        peak_bytes: The most that a worker had.
        added_bytes: What the last tenth of the calls had more than the first.
        processes_left: The most child processes that a call left running.
        forked: A call returned twice, in the worker and in a copy of it.
        long: Characters and seconds of longer completions made from the rows; None: it timed out.
        timeout, grace: Seconds that calls had, and to end after them.
        blocks: It is async, and calls at once took about as long as one after another, while
            nothing else ran on their event loop.
    """

    calls: str
    rows_of_call: int = 1
    seconds: list[float] = field(default_factory=list)
    answered: int = 0
    unmeasured: int = 0
    failures: list[tuple[Case, Score]] = field(default_factory=list)
    cpu_s: float | None = None
    worker_bytes: int = 0
    empty_bytes: int = 0
    peak_bytes: int = 0
    added_bytes: int = 0
    processes_left: int = 0
    forked: bool = False
    long: list[tuple[int, float | None]] = field(default_factory=list)
    timeout: float = 0.0
    grace: float = 0.0
    blocks: bool = False

    @property
    def works(self) -> bool:
        """Returns whether some call succeeded, or none was made."""
        return bool(self.seconds or self.answered or not self.failures)

    @property
    def waiting_share(self) -> float | None:
        """Share of the run time in which it neither computed nor had others compute."""
        return None if self.cpu_s is None else max(0.0, 1.0 - self.cpu_s)

    def counts(self) -> Counter[str]:
        """Samples by status of their failure."""
        return Counter(score.status.label for _, score in self.failures)


def measure(subject: Subject, cases: Sequence[Case], empty_bytes: int = 0) -> Measurement:
    """Measure a function on these samples, until the subject's deadline.

    Args:
        cases: At least one group, groups whole.
        empty_bytes: Memory of an empty worker, from `empty_worker_bytes`.
    """
    spec = subject.spec
    policy = spec_of(subject.dispatcher_item()).policy
    found = Measurement(spec.shape, empty_bytes=empty_bytes, timeout=policy.timeout, grace=policy.grace)
    if subject.own_lane:  # the engine makes its calls, not a worker
        _time(found, subject, cases)
        return found
    with _notes_file() as notes:
        measured = (AsyncMeasuredFunction if spec.is_async else MeasuredFunction)(spec.item, notes)
        with _watched(subject, measured) as watched:
            size, left = _size(subject), subject.deadline - time.monotonic()
            first = cases[:size]
            scores = _scores(subject, first, size, watched)
            calls = 1 + _FIRST_SHARE * left / max(1e-6, *(score.run_s for score in scores))
            if more := cases[size : size * int(min(_FIRST_ROWS // size, calls))]:
                _scores(subject, more, size, watched)
            _read_notes(found, notes)
            _time(found, subject, cases)
            _add_unrepeated(found, subject, first, scores)
            lost = {case.row for case, _ in found.failures}
            sound = [case for case in cases[:_WATCHED_ROWS] if case.row not in lost]
            if spec.shape == "sample" and sound and found.seconds and not _is_over(subject):
                per_row = max(float(np.median(found.seconds)), 1e-6)
                wanted = min(_MOST_REPEATS, max(len(sound), int(_WATCHED_S / per_row)))
                _scores(subject, [sound[place % len(sound)] for place in range(wanted)], size, watched)
                left = subject.deadline - time.monotonic()
                if spec.is_async and _BLOCKS_S <= per_row < left / (9 * AT_ONCE):
                    with _watched(subject, AtOnce(spec.item, notes), 3 * AT_ONCE) as at_once:
                        share = _scores(subject, sound[:1], 1, at_once)[0].value
                    found.blocks = share is not None and share > _AS_LONG
        _read_notes(found, notes)
    subject.close()  # the checks need fewer workers, but for calls that take long and wait
    if spec.shape == "sample" and _waits(found) and not found.failures and min(found.seconds, default=0.0) >= _SLOW_S:
        subject.workers = _WAITING_WORKERS
    subject.hangs = 0
    return found


def empty_worker_bytes() -> int:
    """Resident memory of a worker that has run a function which does nothing."""
    from guerdon.functions import reward

    found = Measurement("sample")
    with _notes_file() as notes, Subject(reward(nothing), [{"completion": ""}], timeout=60.0) as subject:
        with _watched(subject, MeasuredFunction(nothing, notes)) as watched:
            _scores(subject, subject.samples(), 1, watched)
        _read_notes(found, notes)
    return found.worker_bytes


@contextmanager
def _notes_file() -> Iterator[str]:
    """The path of a file in a temporary folder of its own, for the notes of `MeasuredFunction`.

    A signal at any moment leaves no folder behind: unlike with `tempfile.TemporaryDirectory`, its
    removal is arranged before it is made.
    """
    folder = os.path.join(tempfile.gettempdir(), f"guerdon-profile-{secrets.token_hex(8)}")
    try:
        os.mkdir(folder, 0o700)
        yield os.path.join(folder, "calls.jsonl")
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _watched(subject: Subject, target: MeasuredFunction, longer: float = 1.0) -> Dispatcher:
    """The function in one worker, with `target` in its place; its timeout is `longer` times as
    long."""
    spec = spec_of(subject.dispatcher_item())
    policy = replace(spec.policy, timeout=longer * spec.policy.timeout)
    item = ListedSpec(replace(spec, target=target, finish=None, is_async=subject.spec.is_async, policy=policy))
    return Dispatcher([item], workers=1, max_failure_rate=1.0)


def _size(subject: Subject) -> int:
    return subject.num_generations if subject.grouped else 1


def _is_over(subject: Subject) -> bool:
    return subject.hangs >= _MOST_HANGS or subject.deadline <= time.monotonic()


def _waits(found: Measurement) -> bool:
    return found.cpu_s is not None and found.cpu_s < 0.2


def _time(found: Measurement, subject: Subject, cases: Sequence[Case]) -> None:
    """Measures the times of all samples, until time is up or too many hang."""
    workers = _WAITING_WORKERS if _waits(found) else max(1, usable_cores() // 2)
    size = _size(subject)
    chunk = len(cases) if subject.batch else max(size, _CHUNK // size * size)
    warm, scores = cases[: workers * size], list[Score]()
    # A call ended: the first one in each worker imports and fills caches.
    if found.cpu_s is not None:
        scores = _scores(subject, warm, size, workers)
        subject.hangs = 0
    for first in range(0, len(cases), chunk):
        if _is_over(subject):
            found.unmeasured += len(cases) - first
            break
        part = cases[first : first + chunk]
        _add(found, subject, part, _scores(subject, part, size, workers))
    if scores:
        _add_unrepeated(found, subject, warm, scores)
    if found.calls == "sample" and found.seconds and not subject.own_lane:
        _lengthen(found, subject, cases, workers)


def _scores(subject: Subject, cases: Sequence[Case], size: int, runs_in: int | Dispatcher) -> list[Score]:
    """Scores samples in groups of this size; those that did not end in time are cancelled.

    Args:
        runs_in: The number of workers, or a dispatcher of `_watched`.
    """
    try:
        if isinstance(runs_in, Dispatcher):
            return subject.scored(runs_in, cases, size)
        return subject.score(cases, workers=runs_in, group=size)
    except OutOfTime as error:
        return [*error.scores, *[Score(None, Status.CANCELLED)] * (len(cases) - len(error.scores))]


def _add_unrepeated(found: Measurement, subject: Subject, first: Sequence[Case], scores: Sequence[Score]) -> None:
    """Adds the outcomes of the first calls if none of the others ended in time."""
    ended = not subject.batch and any(
        score.status is not Status.CANCELLED and not score.status.failed for score in scores
    )
    if not found.seconds and not found.failures and ended:
        found.unmeasured -= len(first)
        _add(found, subject, first, scores)


def _add(found: Measurement, subject: Subject, cases: Sequence[Case], scores: Sequence[Score]) -> None:
    """Adds the outcomes of one chunk."""
    shared = Counter(score.run_s for score in scores) if subject.spec.batch_size is not None else None
    # A batch that failed was scored row by row, which says nothing of its time.
    failed = subject.batch and any(score.status.failed for score in scores)
    found.rows_of_call = len(cases) if subject.batch else 1
    found.answered += sum(score.status in (Status.OK, Status.ABSTAINED) for score in scores)
    step = {"sample": 1, "group": _size(subject), "batch": 1 if failed else len(cases)}[found.calls]
    for case, score in list(zip(cases, scores, strict=True))[::step]:
        if score.status is Status.CANCELLED:
            found.unmeasured += step
        elif score.status.failed:
            found.failures.append((case, score))
        elif score.status is not Status.SKIPPED and not failed:
            found.seconds.append(score.run_s / shared[score.run_s] if shared is not None else score.run_s)


def _read_notes(found: Measurement, path: str) -> None:
    """Reads the notes of the calls into the measurement."""
    notes = []
    if os.path.exists(path):
        with open(path, encoding="utf-8") as file:
            notes = [json.loads(line) for line in file if line.endswith("\n")]
    found.forked = any(note["forked"] for note in notes)
    notes = [note for note in notes if not note["forked"]]
    if not notes:
        return
    wall = sum(note["wall_s"] for note in notes)
    cpu = sum(note["cpu_s"] for note in notes)
    # If cores are short it also waits for one: not its doing.
    alone = wall - sum(note["queued_s"] for note in notes)
    found.cpu_s = cpu / max(alone, 1e-9)
    found.worker_bytes = max(note["after_bytes"] for note in notes)
    found.peak_bytes = max(note["peak_bytes"] for note in notes)
    found.processes_left = max(note["children"] for note in notes)
    last = [note["after_bytes"] for note in notes if note["pid"] == notes[-1]["pid"]]
    tenth = max(1, len(last) // 10)
    found.added_bytes = int(np.median(last[-tenth:]) - np.median(last[:tenth])) if len(last) >= 20 else 0


def _lengthen(found: Measurement, subject: Subject, cases: Sequence[Case], workers: int) -> None:
    """Times of longer completions: the first sample that is text, with more and more before it."""
    case = next((case for case in cases if isinstance(case.completion, str)), None)
    for length in _LONG:
        if case is None or _is_over(subject):
            return
        text = str(case.completion)
        filler = (_FILLER * (length // len(_FILLER) + 1))[: max(0, length - len(text))]
        (score,) = _scores(subject, [replace(case, completion=filler + text)], 1, workers)
        if score.status is Status.TIMEOUT:
            found.long.append((length, None))
            return
        if score.status in (Status.OK, Status.ABSTAINED):
            found.long.append((length, score.run_s))

"""Costs of one reward function: time, CPU, the interpreter's lock, memory; and on which rows it
hangs, crashes or fails.

- Every call runs in a worker with a timeout, a memory limit and a limit on what it prints, whatever
  lane the function is meant for: nothing that it does ends the profile.
- Times are the engine's, of calls that no measuring disturbs; CPU, lock and memory come from a
  second run of some of the rows (`Measured`).
- After a few hangs, or at the deadline, what was not run yet stays unmeasured, and is counted.
"""

from __future__ import annotations

import json
import os
import re
import secrets
import shutil
import tempfile
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Any, Final

import numpy as np

from guerdon._functions.spec import FunctionSpec
from guerdon._system import worker_environment
from guerdon._system.cpu_count import usable_cores
from guerdon.dispatcher import Dispatcher
from guerdon.profile.measured import AT_ONCE, AsyncMeasured, AtOnce, Measured, nothing
from guerdon.profile.sample_rows import Listed, SampleRows
from guerdon.results.status import Status

__all__ = ["Budget", "Measurement", "RowFailure", "empty_worker_bytes", "exception_of", "measure", "time_requests"]

_MOST_HANGS: Final = 3
_CHUNK: Final = 16
_WATCHED_ROWS: Final = 64
_FIRST_ROWS: Final = 4
_WATCHED_S: Final = 0.3
_MOST_REPEATS: Final = 2000
_WAITING_WORKERS: Final = 8
_BLOCKS_S: Final = 0.005
_AS_LONG: Final = 0.7
_LONG: Final = (1_000, 4_000, 16_000, 64_000)
_FILLER: Final = "Let me think about this step by step and check it again. "
_UNMEASURED: Final = ("batch timeout",)
# Of rust/process/src/output_meter.rs.
_FLOOD: Final = re.compile(r"printed \d+ bytes, more than its max_output of ")
# Of `guerdon._worker.resource_limits`, behind what was raised.
_NO_MEMORY: Final = re.compile(r" \(memory_limit of [^()]+\)$", re.MULTILINE)


@dataclass(frozen=True)
class Budget:
    """Bounds of a function's measurement.

    Attributes:
        timeout: Seconds of one call; a function's own goes first where it is shorter.
        memory_limit: Bytes of a worker, as for `guerdon.reward`.
        max_output: Bytes that a call may print.
        deadline: When measuring ends, by `time.monotonic`.
    """

    timeout: float = 10.0
    memory_limit: int = 2_000_000_000
    max_output: int = 100_000
    deadline: float = float("inf")

    @property
    def left(self) -> float:
        """Seconds until the deadline."""
        return self.deadline - time.monotonic()


@dataclass(frozen=True)
class RowFailure:
    """A row on which a call failed: its place in the rows, and the engine's status and reason.

    Attributes:
        run_s: Seconds that the call took its worker, a timeout and the time until it was killed
            included.
    """

    row: int
    status: str
    reason: str
    run_s: float = 0.0

    @property
    def is_flood(self) -> bool:
        """Returns whether it printed more than it may: the engine's own words, to which what a
        function raises never is, as it begins with the exception's type."""
        return _FLOOD.match(self.reason) is not None

    @property
    def lacks_memory(self) -> bool:
        """Returns whether it got no memory: a MemoryError, or what the engine says of its limit."""
        return exception_of(self.reason) == "MemoryError" or _NO_MEMORY.search(self.reason) is not None


@dataclass
class Measurement:
    """Measured costs; times in seconds, sizes in bytes.

    Attributes:
        calls: What one call scores: ``"sample"``, ``"group"`` or ``"batch"``.
        rows_of_call: Rows of a measured call of a batch function.
        seconds: Run time of each row that was scored (of a group or batch function, of its call).
        unmeasured: Rows that were not run, because time was up or too many hung.
        failures: Rows on which the function failed.
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
    unmeasured: int = 0
    failures: list[RowFailure] = field(default_factory=list)
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
    def waiting_share(self) -> float | None:
        """Share of the run time in which it neither computed nor had others compute."""
        return None if self.cpu_s is None else max(0.0, 1.0 - self.cpu_s)

    def counts(self) -> Counter[str]:
        """Rows by status of their failure."""
        return Counter(failure.status for failure in self.failures)


def measure(spec: FunctionSpec, rows: SampleRows, budget: Budget, empty_bytes: int = 0) -> Measurement:
    """Measure a Python function on these rows.

    Args:
        spec: Of any lane but http.
        rows: At least one group.
        empty_bytes: Memory of an empty worker, from `empty_worker_bytes`.
    """
    limits = _in_worker(spec, budget).spec.policy
    found = Measurement(spec.shape, empty_bytes=empty_bytes, timeout=limits.timeout, grace=limits.grace)
    with _notes_file() as notes:
        measured = (AsyncMeasured if spec.is_async else Measured)(spec.item, notes)
        with Dispatcher([_in_worker(spec, budget, measured)], workers=1, max_failure_rate=1.0) as watched:
            _score(watched, rows.first(_FIRST_ROWS), budget)
            _read_notes(found, notes)
            _time(found, spec, rows, budget)
            lost = {failure.row for failure in found.failures}
            sound = [row for row in range(min(len(rows), _WATCHED_ROWS)) if row not in lost]
            if spec.shape == "sample" and sound and found.seconds and not _hung(found) and budget.left > 0:
                per_row = max(float(np.median(found.seconds)), 1e-6)
                wanted = min(_MOST_REPEATS, max(len(sound), int(_WATCHED_S / per_row)))
                _score(watched, rows.take([sound[place % len(sound)] for place in range(wanted)]), budget)
                if spec.is_async and _BLOCKS_S <= per_row < budget.left / (9 * AT_ONCE):
                    _run_at_once(found, spec, rows.take(sound[:1]), budget, notes)
        _read_notes(found, notes)
    return found


def time_requests(spec: FunctionSpec, rows: SampleRows, budget: Budget) -> Measurement:
    """Times of a reward service, on its own lane."""
    found = Measurement(spec.shape, timeout=spec.policy.timeout, grace=spec.policy.grace)
    policy = replace(spec.policy, on_failure="nan", max_failure_rate=1.0)
    item = Listed(replace(spec, run_if=None, cache=None, pure=False, policy=policy))
    with Dispatcher([item], max_failure_rate=1.0) as dispatcher:
        result = _score(dispatcher, rows, budget)
    _add(found, spec, rows, range(len(rows)), result)
    return found


def empty_worker_bytes() -> int:
    """Resident memory of a worker that has run a function which does nothing."""
    with _notes_file() as notes:
        from guerdon.functions import reward

        spec = reward(nothing).spec
        found = Measurement("sample")
        item = _in_worker(spec, Budget(timeout=60.0), Measured(nothing, notes))
        with Dispatcher([item], workers=1, max_failure_rate=1.0) as dispatcher:
            dispatcher.score(completions=[""])
        _read_notes(found, notes)
    return found.worker_bytes


@contextmanager
def _notes_file() -> Iterator[str]:
    """The path of a file in a temporary folder of its own, for the notes of `Measured`.

    A signal at any moment leaves no folder behind: unlike with `tempfile.TemporaryDirectory`, its
    removal is arranged before it is made.
    """
    folder = os.path.join(tempfile.gettempdir(), f"guerdon-profile-{secrets.token_hex(8)}")
    try:
        os.mkdir(folder, 0o700)
        yield os.path.join(folder, "calls.jsonl")
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _in_worker(spec: FunctionSpec, budget: Budget, target: Any = None) -> Listed:
    """The function alone, in a worker, within the budget."""
    own = spec.policy
    policy = replace(
        own,
        timeout=min(own.timeout, budget.timeout),
        grace=min(own.grace, 0.5),
        total_timeout=None,
        setup_timeout=min(own.setup_timeout, max(60.0, budget.timeout)),
        retries=0,
        limit=None,
        on_failure="nan",
        max_failure_rate=1.0,
        memory_limit=own.memory_limit or budget.memory_limit,
        max_output=own.max_output or budget.max_output,
        # On other lanes it sees the whole environment.
        env=own.env if spec.lane == "process" else tuple(worker_environment.hidden({})),
    )
    changed: dict[str, Any] = {} if target is None else {"target": target, "is_async": spec.is_async}
    return Listed(
        replace(
            spec, lane="process", loop=None, policy=policy, finish=None, run_if=None, pure=False, cache=None, **changed
        )
    )


def _score(dispatcher: Dispatcher, rows: SampleRows, budget: Budget) -> Any:
    return dispatcher.score(**rows.batch(), batch_timeout=max(0.05, min(budget.left, 1e6)))


def _time(found: Measurement, spec: FunctionSpec, rows: SampleRows, budget: Budget) -> None:
    """Times of all rows, until time is up or too many hang."""
    waits = found.cpu_s is not None and found.cpu_s < 0.2
    workers = _WAITING_WORKERS if waits else max(1, usable_cores() // 2)
    size = rows.num_generations
    chunk = len(rows) if spec.shape == "batch" else max(size, _CHUNK // size * size)
    with Dispatcher([_in_worker(spec, budget)], workers=workers, max_failure_rate=1.0) as dispatcher:
        # a call ended: the first one in each worker imports and fills caches
        if found.cpu_s is not None:
            _score(dispatcher, rows.first(workers * size), budget)
        for first in range(0, len(rows), chunk):
            if budget.left <= 0 or _hung(found):
                found.unmeasured += len(rows) - first
                break
            places = range(first, min(first + chunk, len(rows)))
            result = _score(dispatcher, rows.take(places), budget)
            _add(found, spec, rows, places, result)
        if spec.shape == "sample" and found.seconds and not _hung(found):
            _lengthen(found, dispatcher, rows, budget)


def _run_at_once(found: Measurement, spec: FunctionSpec, row: SampleRows, budget: Budget, notes: str) -> None:
    """Learns whether calls of an async function run side by side on one event loop."""
    item = _in_worker(spec, budget, AtOnce(spec.item, notes)).spec
    policy = replace(item.policy, timeout=3 * AT_ONCE * item.policy.timeout)
    with Dispatcher([Listed(replace(item, policy=policy))], workers=1, max_failure_rate=1.0) as dispatcher:
        found.blocks = bool(_score(dispatcher, row, budget).rewards.ravel()[0] > _AS_LONG)


def _add(found: Measurement, spec: FunctionSpec, rows: SampleRows, places: Sequence[int], result: Any) -> None:
    """Adds the outcomes of one chunk."""
    reasons = {failure.sample: (failure.status.label, failure.reason) for failure in result.failures()}
    seconds, status = result.run_s.ravel(), result.status.ravel()
    shared = Counter(seconds.tolist()) if spec.batch_size is not None else None
    found.rows_of_call = len(places) if spec.shape == "batch" else 1
    step = {"sample": 1, "group": rows.num_generations, "batch": len(places)}[spec.shape]
    for sample in range(0, len(places), step):
        row = places[sample]
        if sample in reasons:
            label, reason = reasons[sample]
            if label == "cancelled" or reason.partition("; last error: ")[0] in _UNMEASURED:
                found.unmeasured += step
            else:
                found.failures.append(RowFailure(row, label, reason, float(seconds[sample])))
        elif status[sample] != Status.SKIPPED:
            one = float(seconds[sample])
            found.seconds.append(one / shared[one] if shared is not None else one)


def exception_of(reason: str) -> str:
    """The name of the exception that a reason begins with."""
    found = re.match(r"[\w.]+", reason)
    return found[0].rpartition(".")[2] if found else ""


def _hung(found: Measurement) -> bool:
    return found.counts()["timeout"] >= _MOST_HANGS


def _read_notes(found: Measurement, path: str) -> None:
    """Fills in what the calls wrote down."""
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


def _lengthen(found: Measurement, dispatcher: Dispatcher, rows: SampleRows, budget: Budget) -> None:
    """Times of longer completions: the first row that is text, with more and more before it."""
    place = next((row for row in range(len(rows)) if isinstance(rows.completions[row], str)), None)
    if place is None:
        return
    row = rows.take([place])
    for length in _LONG:
        if budget.left <= 0:
            return
        text = rows.completions[place]
        filler = (_FILLER * (length // len(_FILLER) + 1))[: max(0, length - len(text))]
        result = _score(dispatcher, row.with_completions([filler + text]), budget)
        status = Status(int(result.status.ravel()[0]))
        if status is Status.TIMEOUT and budget.left > 0:
            found.long.append((length, None))
            return
        if status in (Status.OK, Status.ABSTAINED):
            found.long.append((length, float(result.run_s.ravel()[0])))

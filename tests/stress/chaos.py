"""The chaos soak: batches through all lanes while another process does harm, and what must hold of
them all the same.

- Every cell gets one outcome. What is ok, or abstained, or the function's own error, is what a
  serial loop gives.
- A call starts as often as its attempts say, or fewer times (its worker may die between
       claiming it and beginning it): no sibling of a call that was lost is run twice.
- A failure has its cause: two deaths for a crash, a run beyond its timeout for a timeout; on
       the lanes that nobody harms there is none.
- Memory, descriptors, threads and processes are as many at the end as they were soon after the
  start.
"""

from __future__ import annotations

import gc
import json
import os
import random
import signal
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import psutil

from guerdon import Dispatcher, PendingBatch, Recycle, RewardBatch, Status, group_reward, reward
from tests.stress import chaos_process, chaos_rewards
from tests.stress.chaos_rewards import BATCHES, GROUPS, NAMES, PROCESS, STATEFUL, Job

WORKERS = 2
TIMEOUT, GRACE, LONG_STOP = 0.5, 0.1, 1.0
# How the reason ends of a function whose worker was lost before it could call it, and the next one
# again.
UNREADY = ("while it loaded the function", "in setup()")
GROUP = 4
# Calls after which a worker is replaced in any case.
RECYCLE = 1000
# Numbers in the file of counts: samples under way at a time.
CAPACITY = 4096
# The main one, the supervisor's, a loop's, the reader of the harm, and eight for each function of
# the thread lane.
MOST_THREADS = 4 + 2 * 8
REST_S = 90.0
# Harmful acts in the time that the pool takes to be whole again.
HARM_A_RECOVERY = 3.0
# What a serial loop gives, by number and function.
_WANTED = [[chaos_rewards.expected(function, number) for function in range(len(NAMES))] for number in range(CAPACITY)]
WANTED_STATUS = np.array([[status for status, _ in row] for row in _WANTED])
WANTED_VALUES = np.array([[value for _, value in row] for row in _WANTED], dtype=np.float32)


def dispatcher() -> Dispatcher:
    """One function for each way of being called on each lane."""
    bounds: dict[str, Any] = {"timeout": TIMEOUT, "grace": GRACE}
    functions = [
        reward(chaos_rewards.plain, **bounds),
        reward(chaos_rewards.odd, **bounds),
        group_reward(chaos_rewards.grouped, **bounds),
        chaos_rewards.whole,
        reward(chaos_rewards.Stateful(), **bounds),
        reward(chaos_rewards.threaded, lane="thread"),
        group_reward(chaos_rewards.threaded_group, lane="thread"),
        reward(chaos_rewards.awaited),
    ]
    made = Dispatcher(functions, workers=WORKERS, max_failure_rate=1.0, recycle=Recycle(calls=RECYCLE))
    assert list(made.names) == NAMES
    return made


class Toll(NamedTuple):
    """What all batches together came to."""

    cells: int
    statuses: Counter[str]
    harm: Counter[str]
    extra_attempts: int


class Footprint(NamedTuple):
    """What the trainer's process holds."""

    descriptors: int
    threads: int
    processes: int
    megabytes: float


class Soak:
    """Runs waves of batches until `cells` cells have their outcome.

    Args:
        cells: How many, at least.
        seed: Of the batches and of the harm.
        rate: Harmful acts a second, at most.
        folder: For the file of counts.
    """

    def __init__(self, cells: int, seed: int, rate: float, folder: Path) -> None:
        self._cells = cells
        self._seed = seed
        self._rate = rate
        self._paths = [folder / "counts 1", folder / "counts 2"]
        # The file of the next wave, and of the one before it.
        self._counts: list[tuple[str, Any]] = []
        # What was handed in and not looked at yet: number of the first sample, pending, its counts.
        self._open: list[tuple[int, PendingBatch, Any]] = []
        self._chance = random.Random(seed)
        self._statuses: Counter[str] = Counter()
        self._done = 0
        self._extra = 0
        self._harm: list[dict[str, Any]] = []

    def run(self) -> Toll:
        """All of it, every batch checked.

        Raises:
            AssertionError: One of the invariants does not hold.
        """
        for path in self._paths:
            path.write_bytes(bytes(len(NAMES) * CAPACITY))
        shape = (len(NAMES), CAPACITY)
        self._counts = [(str(path), np.memmap(path, np.uint8, "r+", shape=shape)) for path in self._paths]
        try:
            with dispatcher() as made:
                self._footprint_at_rest(made)  # nothing is harmed yet: all is up and warm
                self._until(self._cells // 10, made)
                before = self._footprint_at_rest(made)
                self._until(self._cells, made)
                self._check_flat(before, self._footprint_at_rest(made))
        finally:
            chaos_rewards.close_counts()
        return self._judge()

    def _until(self, cells: int, made: Dispatcher) -> None:
        """Waves amid harm, which is no faster than what this machine makes good."""
        # Nothing is open: each wave begins its file anew.
        rate = min(self._rate, HARM_A_RECOVERY / recovery_s(made, self._counts[0][0]))
        with harm(self._chance.randrange(2**32), rate) as done:
            while self._done < cells:
                self._wave(made)
            self._check_open()
        self._harm += done

    def _footprint_at_rest(self, made: Dispatcher) -> Footprint:
        """The footprint once nothing is harmed any more: every worker is there, and works."""
        self._wave(made)
        self._check_open()
        return footprint_at_rest(made)

    def _wave(self, made: Dispatcher) -> None:
        """Hands in the next batches, one to three, and only then looks at the ones before: the
        workers are never idle."""
        chance = self._chance
        path, counts = self._counts[0]
        counts[:] = 0
        first, in_flight = 0, []
        for _ in range(chance.randint(1, 3)):
            samples = GROUP * chance.randint(1, CAPACITY // GROUP // 6)
            jobs = [Job(first + i, self._cost(), path, CAPACITY) for i in range(samples)]
            texts = ["x" * chance.randint(0, 300)] * samples
            in_flight.append((first, made.submit(prompts=texts, completions=texts, num_generations=GROUP, job=jobs)))
            first += samples
        self._check_open()
        self._open = [(start, pending, counts) for start, pending in in_flight]
        self._counts.reverse()

    def _check_open(self) -> None:
        for start, pending, counts in self._open:
            self._check(pending.result(timeout=300), counts, start)
        self._open = []

    def _cost(self) -> float:
        return self._chance.uniform(0.001, 0.02) if self._chance.random() < 0.03 else 0.0

    def _check(self, result: RewardBatch, counts: Any, start: int) -> None:
        """Checks outcomes, attempts and causes of one batch."""
        samples, functions = len(result), len(NAMES)
        status = result.status.reshape(samples, functions)
        values = result.rewards.reshape(samples, functions)
        attempts = result.attempts.reshape(samples, functions).astype(int)
        run_s = result.run_s.reshape(samples, functions)
        assert (status <= Status.CRASHED).all(), "a cell was cancelled"
        wanted_status = WANTED_STATUS[start : start + samples]
        wanted_values = WANTED_VALUES[start : start + samples]
        harmed = (status == Status.TIMEOUT) | (status == Status.CRASHED)
        # a function that two workers in a row could not be made ready for
        for failure in result.failures():
            if failure.status == Status.ERROR and failure.reason.endswith(UNREADY):
                harmed[failure.sample, NAMES.index(failure.function)] = True
                status[failure.sample, NAMES.index(failure.function)] = Status.CRASHED
        wrong = ~harmed & (status != wanted_status)
        assert not wrong.any(), self._explain("not what a serial loop gives", wrong, result)
        np.testing.assert_array_equal(values, np.where(harmed, np.float32(np.nan), wanted_values))
        for function in range(functions):
            self._check_runs(function, harmed[:, function], attempts[:, function], counts[function, start:], samples)
        unharmed = [f for f in range(functions) if f not in PROCESS]
        assert not harmed[:, unharmed].any(), self._explain("nobody harms this lane", harmed, result)
        early = (status == Status.TIMEOUT) & (run_s < TIMEOUT)
        assert not early.any(), self._explain("a timeout before its time", early, result)
        for function in np.flatnonzero((status == Status.CRASHED).any(axis=0)):
            tries = attempts[status[:, function] == Status.CRASHED, function]
            if function == STATEFUL:  # these are of finish_group, which never ran
                continue
            assert tries.max() == 2, self._explain("crashed at the first death", status == Status.CRASHED, result)
        self._statuses.update(Status(one).label for one in status.ravel())
        self._done += samples * functions

    def _check_runs(self, function: int, harmed: Any, attempts: Any, counts: Any, samples: int) -> None:
        step = samples if function in BATCHES else GROUP if function in GROUPS else 1
        ran = counts[:samples:step].astype(int)
        tried, lost = attempts[::step], harmed[::step]
        if function == STATEFUL:  # its attempts are those of finish_group
            self._extra += int((ran - 1).clip(0).sum())
            assert (ran <= 2).all(), f"seed {self._seed}: {NAMES[function]} ran {ran.max()} times"
            return
        self._extra += int((tried - 1).sum())
        assert (tried <= 2).all(), f"seed {self._seed}: {NAMES[function]} was tried {tried.max()} times"
        assert (ran <= tried).all(), f"seed {self._seed}: {NAMES[function]} ran more often than it was tried"
        assert (ran[~lost] >= 1).all(), f"seed {self._seed}: {NAMES[function]} has an outcome and never ran"

    def _explain(self, what: str, cells: Any, result: RewardBatch) -> str:
        sample, function = np.argwhere(cells)[0].tolist()
        why = [str(f) for f in result.failures() if (f.sample, f.function) == (sample, NAMES[function])]
        status = Status(result.status.reshape(-1, len(NAMES))[sample, function]).label
        return (
            f"seed {self._seed}: {what}: {int(cells.sum())} cells, first {NAMES[function]} on {sample}: {status} {why}"
        )

    def _check_flat(self, before: Footprint, after: Footprint) -> None:
        message = f"seed {self._seed}: {before} became {after}"
        assert after.descriptors <= before.descriptors, message
        assert after.threads <= MOST_THREADS, message  # the thread lane's come as they are needed
        assert after.processes <= before.processes, message
        assert after.megabytes <= before.megabytes + 24, message

    def _judge(self) -> Toll:
        harm_done = Counter(f"{line['action']} {line['to']}" for line in self._harm)
        kills = sum(count for what, count in harm_done.items() if what.startswith("kill"))
        # One that is stopped twice in a row is replaced, too.
        zygotes = kills - harm_done["kill worker"] + harm_done["stop stem"] + harm_done["stop loader"]
        # A zygote takes all of its workers along: those of the pool, of the function with one of
        # its own, of calls tried again.
        deaths = kills + zygotes * (2 * WORKERS + 1) + harm_done["stop long worker"]
        assert self._extra <= deaths, f"seed {self._seed}: {self._extra} more attempts for {deaths} deaths"
        return Toll(self._done, self._statuses, harm_done, self._extra)


def recovery_s(made: Dispatcher, counts: str) -> float:
    """Seconds until a pool is whole again that has lost the process which forks its workers; what
    is scored meanwhile is counted in a file that nobody reads.

    The engine fails calls if for two seconds no worker lives until it is ready: on a machine that
    is ten times slower, the same harm a second would be ten times as much.
    """
    before = set(made.worker_pids())
    began = time.monotonic()
    (loader,) = chaos_process.tree(os.getpid()).loader
    os.kill(loader, signal.SIGKILL)
    text = ["x"] * (4 * GROUP)
    jobs = [Job(number, 0.0, counts, CAPACITY) for number in range(len(text))]
    while len(pids := set(made.worker_pids())) < WORKERS or pids & before:
        assert time.monotonic() - began < REST_S, "no workers come"
        made.score(prompts=text, completions=text, num_generations=GROUP, job=jobs)
    return time.monotonic() - began


def footprint_at_rest(made: Dispatcher) -> Footprint:
    """The trainer's footprint once its pool is whole and nothing else of it runs."""
    deadline = time.monotonic() + REST_S
    last = None
    while time.monotonic() < deadline:
        gc.collect()
        tree = chaos_process.tree(os.getpid())
        if len(made.worker_pids()) == len(tree.worker) >= WORKERS and len(tree.stem) == 1:
            process = psutil.Process()
            now = Footprint(process.num_fds(), threading.active_count(), len(tree.worker), 0.0)
            if now == last:
                return now._replace(megabytes=process.memory_info().rss / 2**20)
            last = now
        time.sleep(0.2)
    raise AssertionError(f"the pool is not whole after {REST_S} s: {made.worker_pids()} of {tree}, {made.stats()}")


@contextmanager
def harm(seed: int, rate: float) -> Iterator[list[dict[str, Any]]]:
    """Has the process do harm meanwhile; afterwards the list says what it did."""
    done: list[dict[str, Any]] = []
    command = [sys.executable, "-m", chaos_process.__name__, str(os.getpid()), str(seed), str(rate), str(LONG_STOP)]
    process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert process.stdin is not None
    assert process.stdout is not None
    assert process.stdout.readline() == "ready\n"
    reader = threading.Thread(target=lambda: done.extend(json.loads(line) for line in process.stdout or ()))
    reader.start()
    try:
        yield done
    finally:
        process.stdin.close()
        process.wait(60)
        reader.join(60)
        process.stdout.close()
    assert process.returncode == 0, f"the process that does the harm failed: {process.returncode}"

"""Scripted batches and streams through the whole engine: invariants 1, 2, 3 and 5 of
docs/internals/promises.md.

Whatever calls do, on whatever lane and in whatever order they end: cell ``[p, g, f]`` is function
``f`` on sample ``p * G + g``, each call ran as often as its outcome says, each group is announced
once, complete, and the array equals a serial loop's bit for bit.
"""

from __future__ import annotations

import os
import random
import signal
import time
from pathlib import Path
from typing import Any

import numpy as np
import psutil
import pytest
from hypothesis import given
from hypothesis import strategies as st

from guerdon import Dispatcher, Status
from tests.contract.scripted_batches import DEADLY, DELAYS, QUIET, Batch, check, examples, scripted, scripts
from tests.contract.scripted_functions import (
    EVERY_LANE,
    HANGING,
    awaited,
    awaited_group,
    forked,
    killable,
    killable_batch,
    killable_group,
    threaded,
)
from tests.contract.scripts import ran
from tests.simple import shared_dispatcher

CUTTABLE = [killable, threaded, awaited]
WITH_GROUPS = [*CUTTABLE, awaited_group]
OPTIONS: dict[str, Any] = {"workers": 2, "max_failure_rate": 1.0}

hurried = shared_dispatcher(EVERY_LANE, batch_timeout=0.05, **OPTIONS)
hanging = shared_dispatcher(HANGING, **OPTIONS)
processes = shared_dispatcher([killable, killable_group, killable_batch], **OPTIONS)
cuttable = shared_dispatcher(CUTTABLE, **OPTIONS)
with_groups = shared_dispatcher(WITH_GROUPS, **OPTIONS)


@pytest.mark.fault(
    "any mix of functions, lanes, delays, failures, retries and deaths (searched)",
    sees="what a serial loop gives; each cell and each group once",
)
@pytest.mark.fault(
    "open batches, in any order and pieces, with any mix of failures and deaths (searched)",
    sees="what a serial loop gives; each cell and each group once",
)
@examples(30)
@given(
    script=scripts(EVERY_LANE, DEADLY, most=12),
    seed=st.none() | st.integers(0, 2**32),
    producers=st.integers(1, 3),
)
def test_row_11_results_equal_a_serial_loop(
    every_lane: Dispatcher, folder: Path, script: Any, seed: int | None, producers: int
) -> None:
    """Random sizes, groups, lanes, delays, failures, retries and deaths of workers, at once or
    (with a seed) piece by piece."""
    check(every_lane, scripted(EVERY_LANE, script, folder), seed, producers)


@examples(12)
@given(
    script=scripts(WITH_GROUPS, DEADLY, most=8),
    seed=st.none() | st.integers(0, 2**32),
    wanted=st.integers(1, 6),
    grouped=st.booleans(),
)
def test_results_equal_a_serial_loop_if_a_quorum_cuts_nothing(
    cuttable: Dispatcher,
    with_groups: Dispatcher,
    folder: Path,
    script: Any,
    seed: int | None,
    wanted: int,
    grouped: bool,
) -> None:
    functions, dispatcher = (WITH_GROUPS, with_groups) if grouped else (CUTTABLE, cuttable)
    prompts, size, changes = script
    wanted = min(wanted, size)
    changes = [change for change in changes if change[0] < len(functions)]
    batch = scripted(functions, (prompts, size, changes), folder)
    if seed is None:
        pending = batch.submit(dispatcher, group_quorum=wanted)
    else:
        pending = batch.stream(dispatcher, seed, 2, group_quorum=wanted)
    result, groups = batch.run(pending)
    batch.check_groups(result, groups)
    batch.check_failures(result)
    batch.check_cut(result, Status.CANCELLED, "quorum", strict=True)
    status = result.status.reshape(len(batch.texts), -1)
    cut = status == Status.CANCELLED
    assert all(spec.shape == "sample" for spec, some in zip(batch.specs, cut.any(axis=0), strict=True) if some)
    left = cut.any(axis=1)
    assert (size - left.reshape(-1, size).sum(axis=1) >= wanted).all()
    started, attempts = ran(batch.log), result.attempts.reshape(len(batch.texts), -1)
    assert all(started[function, sample] <= attempts[sample, function] for function, sample in started)


@examples(15)
@given(
    script=scripts(EVERY_LANE, DEADLY, most=12),
    when=st.floats(0, 0.08),
    end=st.sampled_from(["cancel", "batch timeout"]),
)
def test_inv_2_a_batch_that_is_cut_short_at_any_moment(
    every_lane: Dispatcher, hurried: Dispatcher, folder: Path, script: Any, when: float, end: str
) -> None:
    """Each cell has one outcome: its own, or that of the cut. What is left of the batch harms no
    later one."""
    # its log is its own: what was abandoned may write there for a while
    batch = scripted(EVERY_LANE, script, folder)
    for function in range(len(EVERY_LANE)):
        for sample in range(0, len(batch.texts), 3):
            batch.put(function, sample, delay=max(batch.cells[function][sample].delay, 0.01))
    pending = batch.submit(every_lane if end == "cancel" else hurried)
    if end == "cancel":
        time.sleep(when)
        pending.cancel()
    groups = list(pending.groups(timeout=200))
    result = pending.result(timeout=200)
    batch.check_groups(result, groups)
    batch.check_failures(result)
    cut = (Status.CANCELLED, "cancelled by the caller") if end == "cancel" else (Status.TIMEOUT, "batch timeout")
    batch.check_cut(result, *cut)
    started, attempts = ran(batch.log), result.attempts.reshape(len(batch.texts), -1)
    assert all(started[function, sample] <= attempts[sample, function] for function, sample in started)
    check(every_lane, Batch(EVERY_LANE, 2, 3, folder / "after"))


@examples(3)
@given(script=scripts(HANGING, ("hang",), most=3))
def test_row_11_with_calls_that_hang(hanging: Dispatcher, folder: Path, script: Any) -> None:
    check(hanging, scripted(HANGING, script, folder))


@examples(4)
@given(script=scripts([forked], DEADLY, most=6))
def test_row_11_with_a_fork_for_each_call(folder: Path, script: Any) -> None:
    with Dispatcher([forked], workers=2, max_failure_rate=1.0) as made:
        check(made, scripted([forked], script, folder))


@pytest.mark.parametrize("seed", [1, 2])
def test_row_11_a_large_batch_with_a_bit_of_everything(every_lane: Dispatcher, folder: Path, seed: int) -> None:
    """Many frames under way at once, 3 % of the calls in trouble."""
    chance = random.Random(seed)
    batch = Batch(EVERY_LANE, 60, 8, folder / f"large{seed}")
    for function, spec in enumerate(batch.specs):
        for sample in range(len(batch.texts)):
            if chance.random() < 0.03:
                allowed = DEADLY if spec.lane == "process" else QUIET
                moves = tuple(chance.choice(allowed) for _ in range(chance.choice((0, 1, 1, 2, 3))))
                gives = chance.choice(("number", "number", "none", "text"))
                batch.put(function, sample, moves=moves, gives=gives, delay=chance.choice((0.0, *DELAYS)))
    check(every_lane, batch)


@pytest.mark.fault(
    "workers and zygotes are killed from outside at any moment (searched)",
    sees="what a serial loop gives",
)
@examples(8)
@given(
    seed=st.integers(0, 2**32), when=st.floats(0, 0.1), victims=st.sampled_from(["a worker", "all workers", "zygotes"])
)
def test_row_11_whatever_processes_are_killed_from_outside(
    processes: Dispatcher, folder: Path, seed: int, when: float, victims: str
) -> None:
    """A kill hits the calls in hand; each is tried once more, and nothing else is lost or run
    twice."""
    chance = random.Random(seed)
    batch = Batch([killable, killable_group, killable_batch], 12, 4, folder / "log")
    for function in range(3):
        for sample in range(len(batch.texts)):
            batch.put(function, sample, delay=chance.choice((0.0, 0.0, 0.002, 0.02)))
    pending = batch.submit(processes)
    time.sleep(when)
    killed = kill(processes, victims, chance)
    result = pending.result(timeout=200)
    assert result.status.max() == 0, result.failures()
    expected = [[batch.foretold(function, sample).value for function in range(3)] for sample in range(len(batch.texts))]
    batch.check_rewards(result, np.array(expected, np.float32))
    assert int(result.attempts.max()) <= 2
    attempts = result.attempts.reshape(len(batch.texts), -1)
    calls = {(function, batch.first(function, sample)) for function in range(3) for sample in range(len(batch.texts))}
    again = {call for call in calls if attempts[call[1], call[0]] > 1}
    assert len(again) <= killed
    # A worker that dies between its claim and the first line of the function has started nothing.
    started = ran(batch.log)
    os.unlink(batch.log)
    assert set(started) == calls
    assert all(started[call] == 1 or call in again for call in calls)
    assert all(started[call] <= 2 for call in calls)


def kill(dispatcher: Dispatcher, victims: str, chance: random.Random) -> int:
    """Kills processes of the engine; the number of calls that may have been in hand."""
    workers = dispatcher.worker_pids()
    if victims == "a worker":
        chosen = [chance.choice(workers)] if workers else []
    elif victims == "all workers":
        chosen = workers
    else:
        chosen = sorted({pid for worker in workers for pid in above(worker)})
    for pid in chosen:
        try:
            os.kill(pid, signal.SIGKILL)
        except ProcessLookupError:
            continue
    return 8 if victims == "zygotes" else len(chosen)


def above(pid: int) -> list[int]:
    """The processes between this one and its descendant `pid`."""
    try:
        parents = [parent.pid for parent in psutil.Process(pid).parents()]
    except psutil.Error:  # it ended meanwhile
        return []
    return parents[: parents.index(os.getpid())] if os.getpid() in parents else []

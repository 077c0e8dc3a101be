"""Deadlines hold, on every lane, and each says which one it was: invariant 4 of
docs/internals/promises.md.

Times are bounded from below exactly, and from above only so coarsely that a busy machine keeps
them.
"""

from __future__ import annotations

import re
import time
from pathlib import Path
from typing import Any

import numpy as np
import psutil
import pytest

from guerdon import Dispatcher, Limit, RewardBatch, Status, group_reward, reward
from tests.clock import eventually
from tests.contract import misbehaving_functions as behaviours

LANES = {"process": behaviours.sleep, "thread": behaviours.sleep, "asyncio": behaviours.wait}
LONG = 16.0  # of what must be cut short; a thread has to sit it out


def reasons(result: RewardBatch) -> dict[int, str]:
    return {failure.sample: failure.reason for failure in result.failures()}


@pytest.mark.parametrize("lane", LANES)
def test_timeout_bounds_one_call_and_spares_the_others(lane: str) -> None:
    with Dispatcher([reward(LANES[lane], lane=lane, name="slow", timeout=2.5, grace=0.2)], workers=2) as made:
        started = time.monotonic()
        result = made.score(completions=["c"] * 6, seconds=[0.0, 0.01, LONG, 0.0, 0.02, 0.01])
        took = time.monotonic() - started
    assert result.status.ravel().tolist() == [0, 0, Status.TIMEOUT, 0, 0, 0]
    assert 2.5 <= took < LONG
    (failure,) = result.failures()
    assert failure.sample == 2
    assert failure.attempts == 1
    assert re.fullmatch(r"no answer within the timeout of 2\.5 s(; last seen in \w+ \(.*:\d+\))?", failure.reason)
    assert failure.run_s >= 2.5


@pytest.mark.parametrize("lane", LANES)
def test_a_group_that_runs_too_long_fails_whole_and_alone(lane: str) -> None:
    function = behaviours.wait_all if lane == "asyncio" else behaviours.sleep_all
    with Dispatcher([group_reward(function, lane=lane, name="slow", timeout=2.5, grace=0.2)], workers=2) as made:
        result = made.score(completions=["c"] * 6, seconds=[0.0, 0, LONG, 0, 0.02, 0], num_generations=2)
    assert result.status[:, :, 0].tolist() == [[0, 0], [Status.TIMEOUT] * 2, [0, 0]]


@pytest.mark.fault(
    "far more calls wait than the timeout would allow to run",
    sees="nothing: the timeout begins when a call starts",
)
@pytest.mark.parametrize("lane", LANES)
def test_row_5_timeout_does_not_count_the_queue(lane: str) -> None:
    """Far more work than one place can do within the timeout of a call."""
    slow = reward(LANES[lane], lane=lane, name="slow", timeout=4.0, limit=Limit(concurrency=1))
    with Dispatcher([slow], workers=1) as made:
        result = made.score(completions=["c"] * 24, seconds=[0.2] * 24)
    assert result.status.max() == Status.OK, reasons(result)
    assert result.queue_s.max() >= 4.0


@pytest.mark.parametrize("lane", LANES)
def test_total_timeout_counts_the_queue(lane: str) -> None:
    slow = reward(LANES[lane], lane=lane, name="slow", timeout=60, total_timeout=5.0, limit=Limit(concurrency=1))
    with Dispatcher([slow], workers=1, max_failure_rate=1.0) as made:
        made.score(completions=["c"], seconds=[0.0])  # starting up is not what is looked at
        started = time.monotonic()
        result = made.score(completions=["c"] * 80, seconds=[0.3] * 80)
        took = time.monotonic() - started
        status = result.status.ravel().tolist()
        assert status[0] == Status.OK
        assert status[-1] == Status.TIMEOUT
        assert set(reasons(result).values()) == {"total timeout"}
        assert 5.0 <= took < 23  # all of them take 24 s
        # It is each batch's own, and the place is free again.
        assert made.score(completions=["c"], seconds=[0.0]).status.max() == Status.OK


@pytest.mark.parametrize("lane", LANES)
def test_total_timeout_counts_retries(lane: str, tmp_path: Path) -> None:
    function = behaviours.afails_at_first if lane == "asyncio" else behaviours.fails_at_first
    failing = reward(function, lane=lane, name="failing", retries=1000, total_timeout=5.0)
    with Dispatcher([failing], workers=1) as made:
        # starts up
        made.score(completions=["c"], path=[str(tmp_path / "first")], times=[0], how=["error"])
        started = time.monotonic()
        result = made.score(completions=["c"], path=[str(tmp_path / "notes")], times=[1 << 30], how=["error"])
        took = time.monotonic() - started
    assert took < 60  # a thousand attempts take hours
    (failure,) = result.failures()
    assert failure.status is Status.ERROR or failure.reason == "total timeout"
    assert failure.attempts > 1


def test_batch_timeout_bounds_the_batch_on_every_lane() -> None:
    functions = [reward(function, lane=lane, name=lane, timeout=60) for lane, function in LANES.items()]
    with Dispatcher(functions, workers=1, batch_timeout=5.0, max_failure_rate=1.0) as made:
        made.score(completions=["c"], seconds=[0.0])
        started = time.monotonic()
        result = made.score(completions=["c"] * 10, seconds=[0.0] * 2 + [LONG] * 8)
        took = time.monotonic() - started
        assert 5.0 <= took < LONG
        assert result.status[0, 0].tolist() == [Status.OK] * 3
        assert result.status[-1, 0].tolist() == [Status.TIMEOUT] * 3
        assert {failure.reason for failure in result.failures()} == {"batch timeout"}
        assert made.score(completions=["c"], seconds=[0.0]).status.ravel()[0] == Status.OK


def test_an_answer_after_the_timeout_is_a_timeout(tmp_path: Path) -> None:
    """Swallowing what ends it does not make a late answer a reward."""
    functions = [
        reward(behaviours.stubborn, name="process", timeout=1.5, grace=20),
        reward(behaviours.stubborn, name="thread", timeout=1.5, lane="thread"),
        reward(behaviours.stubborn_wait, name="asyncio", timeout=1.5),
    ]
    with Dispatcher(functions, workers=1) as made:
        result = made.score(completions=["c"], seconds=[3.5], note=[str(tmp_path / "note")])
        time.sleep(2.5)  # the abandoned ones answer now
        again = made.score(completions=["c"], seconds=[0.0], note=[str(tmp_path / "note")])
    assert result.status.ravel().tolist() == [Status.TIMEOUT] * 3
    assert np.isnan(result.rewards).all()
    assert again.rewards.ravel().tolist() == [1.0] * 3


@pytest.mark.parametrize("cause", ["timeout", "total_timeout", "batch_timeout", "cancel"])
def test_any_end_of_a_call_ends_its_process(cause: str, tmp_path: Path) -> None:
    """A signal, then a kill: not only the waiting ends."""
    note = tmp_path / "note"
    options: dict[str, Any] = {"timeout": 600, **({cause: 5.0} if cause.endswith("timeout") else {})}
    if cause == "batch_timeout":
        del options[cause]
    slow = reward(behaviours.stubborn, grace=0.2, **options)
    with Dispatcher([slow], workers=1, batch_timeout=5.0 if cause == "batch_timeout" else None) as made:
        made.score(completions=["c"], seconds=[0.0], note=[str(tmp_path / "first")])  # starts up
        pending = made.submit(completions=["c"], seconds=[600.0], note=[str(note)])
        if cause == "cancel":
            while not note.exists() or not note.read_text():
                time.sleep(0.01)
            pending.cancel()
        result = pending.result(timeout=60)
        assert result.status.ravel()[0] == (Status.CANCELLED if cause == "cancel" else Status.TIMEOUT)
        pid = int(note.read_text())
        eventually(lambda: not psutil.pid_exists(pid))
        assert made.stats()["kills"] >= 1

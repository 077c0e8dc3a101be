"""Deadlines hold, on every lane, and each says which one it was (invariant 4 of
docs/internals/promises.md); retries are only those that were asked for.

Times are bounded from below exactly, and from above only so coarsely that a busy machine keeps
them."""

from __future__ import annotations

import functools
import re
import threading
import time
from collections.abc import Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import psutil
import pytest

from guerdon import Dispatcher, Limit, RewardBatch, Status, group_reward, reward
from tests.clock import eventually
from tests.contract import misbehaving_functions as behaviours

LANES = ("process", "thread", "asyncio")
LONG = 16.0  # of what must be cut short


@contextmanager
def every_lane(decorate: Any = reward, workers: int = 1, batch_timeout: float | None = None, **options: Any) -> Any:
    """A dispatcher with a function that takes its time on each lane. A thread can't be ended: its
    function returns before the dispatcher is closed."""
    over = threading.Event()

    def rest(seconds: float) -> float:
        return float(over.wait(seconds))

    def rest_all(seconds: list[float]) -> list[float]:
        return [rest(seconds[0])] * len(seconds)

    functions: Any = (behaviours.sleep, rest, behaviours.wait)
    if decorate is group_reward:
        functions = (behaviours.sleep_all, rest_all, behaviours.wait_all)
    made = [decorate(each, lane=lane, name=lane, **options) for each, lane in zip(functions, LANES, strict=True)]
    with Dispatcher(made, workers=workers, batch_timeout=batch_timeout, max_failure_rate=1.0) as dispatcher:
        try:
            yield dispatcher
        finally:
            over.set()


def test_timeout_bounds_one_call_and_spares_the_others() -> None:
    with every_lane(workers=2, timeout=2.5, grace=0.2) as made:
        started = time.monotonic()
        result = made.score(completions=["c"] * 6, seconds=[0.0, 0.01, LONG, 0.0, 0.02, 0.01])
        took = time.monotonic() - started
    assert result.status[:, 0].T.tolist() == [[0, 0, Status.TIMEOUT, 0, 0, 0]] * 3
    assert 2.5 <= took < LONG
    assert [failure.function for failure in result.failures()] == list(LANES)
    for failure in result.failures():
        assert (failure.sample, failure.attempts) == (2, 1)
        assert re.fullmatch(r"no answer within the timeout of 2\.5 s(; last seen in \w+ \(.*:\d+\))?", failure.reason)
        assert failure.run_s >= 2.5


def test_a_group_that_runs_too_long_fails_whole_and_alone() -> None:
    with every_lane(group_reward, workers=2, timeout=2.5, grace=0.2) as made:
        result = made.score(completions=["c"] * 6, seconds=[0.0, 0, LONG, 0, 0.02, 0], num_generations=2)
    for lane in range(3):
        assert result.status[:, :, lane].tolist() == [[0, 0], [Status.TIMEOUT] * 2, [0, 0]]


def sleep_listed(completions: list[str], seconds: list[float], **columns: Any) -> list[float]:
    """A function of TRL's batch contract."""
    return [behaviours.sleep(each) for each in seconds]


def test_a_sample_that_hangs_costs_what_the_docs_say() -> None:
    """The table "When one sample hangs" of docs/from-trl.md."""
    short: dict[str, Any] = {"timeout": 2.5, "grace": 0.2}
    plain = reward(sleep_listed, name="plain", **short)
    rowwise = reward(sleep_listed, name="rowwise", rowwise=True, **short)
    with Dispatcher([plain, rowwise, reward(behaviours.sleep, **short)], workers=2, max_failure_rate=1.0) as made:
        result = made.score(completions=["c"] * 4, seconds=[0.0, LONG, 0.0, 0.0])
    one = [0, Status.TIMEOUT, 0, 0]
    assert result.status[:, 0].T.tolist() == [[Status.TIMEOUT] * 4, one, one]


@pytest.mark.fault(
    "far more calls wait than the timeout would allow to run",
    sees="nothing: the timeout begins when a call starts",
)
def test_row_5_timeout_does_not_count_the_queue() -> None:
    with every_lane(timeout=4.0, limit=Limit(concurrency=1)) as made:
        result = made.score(completions=["c"] * 24, seconds=[0.2] * 24)
    assert result.status.max() == Status.OK, result.failures()
    assert result.queue_s.reshape(24, 3).max(axis=0).min() >= 4.0


def test_total_timeout_counts_the_queue() -> None:
    with every_lane(timeout=60, total_timeout=5.0, limit=Limit(concurrency=1)) as made:
        made.score(completions=["c"], seconds=[0.0])  # starting up is not what is looked at
        started = time.monotonic()
        result = made.score(completions=["c"] * 80, seconds=[0.3] * 80)
        took = time.monotonic() - started
        assert result.status[0, 0].tolist() == [Status.OK] * 3
        assert result.status[-1, 0].tolist() == [Status.TIMEOUT] * 3
        assert {failure.reason for failure in result.failures()} == {"total timeout"}
        assert 5.0 <= took < 23  # all of them take 24 s
        # It is each batch's own, and the place is free again.
        assert made.score(completions=["c"], seconds=[0.0]).status.max() == Status.OK


def test_total_timeout_counts_retries(tmp_path: Path) -> None:
    with Dispatcher(failing(tmp_path, LANES, retries=1000, total_timeout=5.0), workers=1) as made:
        made.score(completions=["c"], times=[0], how=["error"])  # starts up
        started = time.monotonic()
        result = made.score(completions=["c"], times=[1 << 30], how=["error"])
        took = time.monotonic() - started
    assert took < 60  # a thousand attempts take hours
    assert len(result.failures()) == 3
    for failure in result.failures():
        assert failure.status is Status.ERROR or failure.reason == "total timeout"
        assert failure.attempts > 1


def test_batch_timeout_bounds_the_batch_on_every_lane() -> None:
    with every_lane(timeout=60, batch_timeout=5.0) as made:
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


def test_any_end_of_a_call_ends_its_process(tmp_path: Path) -> None:
    """A signal, then a kill: not only the waiting ends."""
    causes = ("timeout", "total_timeout", "batch_timeout", "cancel")
    notes = {cause: tmp_path / cause for cause in causes}
    with ExitStack() as stack:
        running = {}
        for cause in causes:
            own: Any = {cause: 5.0} if cause in ("timeout", "total_timeout") else {}
            slow = reward(behaviours.stubborn, grace=0.2, **{"timeout": 600, **own})
            of_batch = 5.0 if cause == "batch_timeout" else None
            made = stack.enter_context(Dispatcher([slow], workers=1, batch_timeout=of_batch))
            # starts up
            made.score(completions=["c"], seconds=[0.0], note=[str(tmp_path / "first")])
            pending = made.submit(completions=["c"], seconds=[600.0], note=[str(notes[cause])])
            running[cause] = made, pending
        eventually(lambda: notes["cancel"].exists() and notes["cancel"].read_text())
        running["cancel"][1].cancel()
        for cause, (made, pending) in running.items():
            result = pending.result(timeout=60)
            assert result.status.item() == (Status.CANCELLED if cause == "cancel" else Status.TIMEOUT), cause
            pid = int(notes[cause].read_text())
            eventually(lambda pid=pid: not psutil.pid_exists(pid))  # type: ignore[misc]
            assert made.stats()["kills"] >= 1, cause


def failing(folder: Path, lanes: Sequence[str], **options: Any) -> list[Any]:
    """Functions that note in the folder when their attempts begin, and fail the first ones."""
    functions: list[Any] = []
    for lane in lanes:
        function = behaviours.afails_at_first if lane == "asyncio" else behaviours.fails_at_first
        noted: Any = functools.partial(function, path=str(folder / lane))
        functions.append(reward(noted, lane=lane, name=lane, max_failure_rate=1.0, **options))  # type: ignore[arg-type]
    return functions


def score(
    folder: Path, how: str, times: int, lanes: Sequence[str] = LANES, **options: Any
) -> tuple[RewardBatch, list[list[float]]]:
    """The result of one sample that fails `times` times on each lane, and when its attempts began
    there."""
    with Dispatcher(failing(folder, lanes, **options), workers=1) as made:
        result = made.score(completions=["c"], times=[times], how=[how])
    return result, [[float(line) for line in (folder / lane).read_text().splitlines()] for lane in lanes]


@pytest.mark.parametrize(
    ("times", "retries", "status"), [(2, 2, Status.OK), (3, 2, Status.ERROR), (1, 0, Status.ERROR)]
)
def test_errors_are_tried_again(times: int, retries: int, status: Status, tmp_path: Path) -> None:
    result, attempts = score(tmp_path, "error", times, retries=retries)
    assert result.status.ravel().tolist() == [status] * 3
    assert result.attempts.ravel().tolist() == [retries + 1] * 3 == [len(each) for each in attempts]
    assert [result.timings[lane]["retries"] for lane in LANES] == [retries] * 3
    assert all(("after" in str(failure)) == (retries > 0) for failure in result.failures())


def test_timeouts_are_tried_again(tmp_path: Path) -> None:
    result, attempts = score(tmp_path, "hang", 1, ["process", "asyncio"], retries=1, timeout=2.5, grace=0.2)
    assert result.status.ravel().tolist() == [Status.OK] * 2
    assert result.attempts.ravel().tolist() == [2] * 2
    assert all(again - first >= 2.4 for first, again in attempts)


def test_an_answer_that_says_when_to_come_back_is_obeyed(tmp_path: Path) -> None:
    result, attempts = score(tmp_path, "later", 1, retries=1)
    assert result.status.ravel().tolist() == [Status.OK] * 3
    assert all(again - first >= behaviours.Later.retry_after - 0.01 for first, again in attempts)


@pytest.mark.parametrize(
    ("times", "retries", "status", "attempts"),
    [
        (1, 0, Status.OK, 2),  # the one more try that each suspect gets
        (2, 0, Status.CRASHED, 2),
        (2, 1, Status.OK, 3),
        (9, 2, Status.CRASHED, 4),
    ],
)
def test_a_crash_is_tried_once_more_beyond_the_retries(
    times: int, retries: int, status: Status, attempts: int, tmp_path: Path
) -> None:
    result, (begun,) = score(tmp_path, "exit", times, ["process"], retries=retries)
    assert result.status.ravel().tolist() == [status]
    assert result.attempts.ravel().tolist() == [attempts] == [len(begun)]

"""The thread lane, through a dispatcher."""

from __future__ import annotations

import asyncio
import subprocess
import sys
import threading
import time
import warnings
from collections.abc import Iterator
from typing import Any

import pytest

from guerdon import Dispatcher, GuerdonWarning, Limit, PendingBatch, StatefulReward, Status, group_reward
from tests.lanes import lane_helpers
from tests.lanes.lane_helpers import eventually, ours, scored, threaded


@pytest.fixture
def no_new_threads() -> Iterator[None]:
    with lane_helpers.no_new_threads():
        yield


@pytest.mark.usefixtures("no_new_threads")
def test_values_come_back_in_order() -> None:
    result = scored(threaded(lambda completion: float(completion)), 1000)
    assert result.rewards[:, 0, 0].tolist() == list(range(1000))


def test_return_values_become_cells() -> None:
    def function(completion: str) -> object:
        return [1, None, True, {"score": 2.5, "why": "so"}, "3", float("nan"), 1e39, [1.0]][int(completion)]

    result = scored(threaded(function), 8)
    status = result.status[:, 0, 0].tolist()
    assert status == [Status.OK, Status.ABSTAINED, Status.OK, Status.OK, *[Status.ERROR] * 4]
    assert result.rewards[[0, 2, 3], 0, 0].tolist() == [1.0, 1.0, 2.5]
    reasons = [failure.reason for failure in result.failures()]
    assert "a str ('3') is not a reward" in reasons[0]
    assert "no reward" in reasons[1] or "not a reward" in reasons[1]
    assert "float32" in reasons[2]
    assert "a list" in reasons[3]


def test_an_exception_fails_one_cell_whatever_it_is() -> None:
    """None of these ends the thread."""

    class Mute(Exception):
        def __getattribute__(self, name: str) -> Any:
            raise ValueError(name)

    class Text(str):
        def __bool__(self) -> bool:
            raise ValueError("no")

    class Odd(Exception):
        def __str__(self) -> str:
            return Text("odd")

    kinds = [
        ValueError("bad"),
        SystemExit(3),
        KeyboardInterrupt(),
        GeneratorExit(),
        StopIteration(),
        MemoryError(),
        Mute(),
        Odd(),
    ]

    def function(completion: str) -> float:
        index = int(completion)
        if index < len(kinds):
            raise kinds[index]
        return 1.0

    result = scored(threaded(function), 20)
    assert result.status[:, 0, 0].tolist() == [Status.ERROR] * len(kinds) + [Status.OK] * (20 - len(kinds))
    first = result.failures()[0]
    assert first.reason == "ValueError: bad"
    assert first.traceback is not None
    assert "in function" in first.traceback
    assert "guerdon/_lanes" not in first.traceback


def test_keywords_defaults_and_rows() -> None:
    def function(completion: str, answer: int, *, scale: float = 2.0, **row: object) -> float:
        assert set(row) == {"extra"}
        return float(completion) + answer * scale

    with Dispatcher([threaded(function)]) as dispatcher:
        result = dispatcher.score(completions=["1", "2"], answer=[10, 20], extra=[None, None])
        assert result.rewards[:, 0, 0].tolist() == [21.0, 42.0]
        result = dispatcher.score(completions=["1", "2"], answer=[10, 20], scale=[0.0, 1.0], extra=[None, None])
        assert result.rewards[:, 0, 0].tolist() == [1.0, 22.0]


def test_live_objects_are_passed_as_they_are() -> None:
    environments = [object(), object()]
    seen = []

    def function(environment: object) -> float:
        seen.append(environment)
        return 1.0

    with Dispatcher([threaded(function)]) as dispatcher:
        dispatcher.score(completions=["", ""], environments=environments)
    assert {id(one) for one in seen} == {id(one) for one in environments}


def test_waiting_functions_run_on_several_threads() -> None:
    threads = set()

    def function(completion: str) -> float:
        threads.add(threading.get_ident())
        time.sleep(0.2)
        return 1.0

    with Dispatcher([threaded(function, limit=Limit(concurrency=16))]) as dispatcher:
        dispatcher.score(completions=[""] * 16)  # shows that it waits
        start = time.monotonic()
        dispatcher.score(completions=[""] * 64)
        took = time.monotonic() - start
    assert took < 64 * 0.2 / 2
    assert 4 < len(threads) <= 16


def test_cheap_functions_keep_to_one_thread() -> None:
    """As long as none of them takes long, which a busy machine may make of any."""
    threads = set()

    def function(completion: str) -> float:
        threads.add(threading.get_ident())
        return 1.0

    end, longest = time.monotonic() + 60, 1.0
    while longest >= 0.0001 and time.monotonic() < end:
        threads.clear()
        longest = scored(threaded(function), 1000).run_s.max()
    assert longest < 0.0001
    assert len(threads) <= 2


def test_a_limit_of_one_is_one_call_at_a_time() -> None:
    running = []

    def function(completion: str) -> float:
        running.append(completion)
        time.sleep(0.005)
        assert len(running) == 1
        running.clear()
        return 1.0

    result = scored(threaded(function, limit=Limit(concurrency=1)), 20)
    assert (result.status == Status.OK).all()


@pytest.mark.usefixtures("no_new_threads")
def test_a_call_past_its_timeout_is_abandoned() -> None:
    """The others go on, the late answer is dropped, the leak is counted and warned of."""
    release = threading.Event()

    def function(completion: str) -> float:
        if completion == "3":
            release.wait(100)
        return 1.0

    with Dispatcher([threaded(function, timeout=1.5, limit=Limit(concurrency=1))]) as dispatcher:
        start = time.monotonic()
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            result = dispatcher.score(completions=[str(index) for index in range(8)])
            assert time.monotonic() - start < 60
            eventually(lambda: ours(caught))
        [warning] = ours(caught)
        assert warning.filename == __file__, "the line that waits, or a later one"
        assert "past its timeout of 1.5 s" in str(warning.message)
        assert result.status[:, 0, 0].tolist() == [Status.OK] * 3 + [Status.TIMEOUT] + [Status.OK] * 4
        [failure] = result.failures()
        assert "1.5 s; last seen in function (" in failure.reason
        assert "test_thread_lane.py:" in failure.reason
        assert "release.wait(100)" in (failure.traceback or "")
        assert 1.5 <= failure.run_s < 60
        assert dispatcher.stats()["abandoned_threads"] == 1
        release.set()
        eventually(lambda: dispatcher.stats()["abandoned_threads"] == 0)
        assert dispatcher.score(completions=["1"]).rewards.item() == 1.0


def test_calls_behind_a_slow_one_are_taken_back() -> None:
    """Slow calls in one frame run side by side."""
    slow = threading.Barrier(3)  # none of them ends before all have begun

    def function(completion: str) -> float:
        if completion in {"10", "20", "30"}:
            slow.wait(60)
        return float(completion)

    with Dispatcher([threaded(function)]) as dispatcher:
        dispatcher.score(completions=["0"] * 500)  # cheap so far: chunks are long, on one thread
        result = dispatcher.score(completions=[str(index) for index in range(64)])
    assert result.rewards[:, 0, 0].tolist() == list(range(64))


def test_ended_calls_are_reported_while_the_next_one_is_slow() -> None:
    go_on = threading.Event()

    def function(completion: str) -> float:
        if completion == "50":
            go_on.wait(60)
        return float(completion)

    with Dispatcher([threaded(function)]) as dispatcher:
        dispatcher.score(completions=["1"] * 100)  # known to be cheap: what comes now is one chunk
        pending = dispatcher.submit(completions=[str(index) for index in range(100)])
        groups = pending.groups()
        assert {next(groups).index for _ in range(99)} == {*range(100)} - {50}
        go_on.set()
        assert next(groups).index == 50


def test_calls_that_ended_before_a_cancel_count() -> None:
    """Calls that ended are completed together; no end of the batch comes between."""
    ended: list[int] = []
    batches: list[PendingBatch] = []
    submitted = threading.Lock()

    def function(completion: str) -> float:
        if completion == "cancel":
            with submitted:
                batches[0].cancel()
            return -1.0
        ended.append(int(completion))
        return float(completion)

    with Dispatcher([threaded(function, limit=Limit(concurrency=1))], max_failure_rate=1.0) as dispatcher:
        dispatcher.score(completions=["1"] * 100)  # known to be cheap: what comes now is one chunk
        for _ in range(20):
            ended.clear()
            with submitted:
                batches[:] = [dispatcher.submit(completions=[*map(str, range(1, 6)), "cancel"])]
            result = batches[0].result()
            assert [result.rewards[one - 1, 0, 0] for one in ended] == ended, result.failures()


def test_retries() -> None:
    tries: dict[str, int] = {}

    def function(completion: str) -> float:
        tries[completion] = tries.get(completion, 0) + 1
        if tries[completion] <= int(completion):
            raise ValueError("not yet")
        return 1.0

    result = scored(threaded(function, retries=1), 3)
    assert result.status[:, 0, 0].tolist() == [Status.OK, Status.OK, Status.ERROR]
    assert result.attempts[:, 0, 0].tolist() == [1, 2, 2]


def test_deadline_budget_and_cancel_end_waiting_calls() -> None:
    def function(completion: str) -> float:
        time.sleep(0.2)
        return 1.0

    start = time.monotonic()
    result = scored(threaded(function, total_timeout=4.0, limit=Limit(concurrency=1)), 200)
    assert time.monotonic() - start < 39  # all of them take 40 s
    assert set(result.status[:, 0, 0].tolist()) == {Status.OK, Status.TIMEOUT}
    with Dispatcher([threaded(function, limit=Limit(concurrency=1))], max_failure_rate=1.0) as dispatcher:
        pending = dispatcher.submit(completions=[""] * 50)
        time.sleep(0.3)
        pending.cancel()
        assert Status.CANCELLED in pending.result().status
        assert dispatcher.score(completions=[""]).rewards.item() == 1.0


def test_group_functions() -> None:
    def spread(completions: list[str], answer: list[int]) -> list[float | None]:
        completions.append("the list is the call's own")
        assert len(answer) == 4
        return [float(completions[0]) + index if index else None for index in range(4)]

    with Dispatcher([group_reward(spread, lane="thread")]) as dispatcher:
        result = dispatcher.score(
            completions=[str(index) for index in range(12)], answer=list(range(12)), num_generations=4
        )
    assert result.status[:, :, 0].tolist() == [[Status.ABSTAINED, 0, 0, 0]] * 3
    assert result.rewards[:, 1:, 0].tolist() == [[1, 2, 3], [5, 6, 7], [9, 10, 11]]


def test_a_group_of_the_wrong_length_fails_whole() -> None:
    with Dispatcher([group_reward(lambda completions: [1.0], name="short", lane="thread")]) as dispatcher:
        result = dispatcher.score(completions=["a", "b"], num_generations=2)
    assert (result.status == Status.ERROR).all()
    assert "1 rewards were returned for 2 completions" in result.failures()[0].reason


class Counted(StatefulReward):
    """Row 28 of docs/internals/promises.md, here and on the other lanes."""

    def __init__(self) -> None:
        self.did: list[str] = []
        self.groups: list[list[float | None]] = []

    def setup(self) -> None:
        time.sleep(0.05)
        self.did.append("setup")

    def close(self) -> None:
        self.did.append("close")

    def score(self, completion: str) -> float:
        assert self.did == ["setup"]
        time.sleep(0.002)
        if completion == "5":
            raise ValueError("five")
        return float(completion)

    def finish_group(self, scores: list[float | None], completions: list[str]) -> list[float | None]:
        assert len(completions) == 4
        self.groups.append(scores)
        return [None if score is None else score * 10 for score in scores]


def test_row_28_a_stateful_reward_is_set_up_once_and_closed_once() -> None:
    counted = Counted()
    with Dispatcher([threaded(counted)], max_failure_rate=1.0) as dispatcher:
        for _ in range(3):
            result = dispatcher.score(completions=[str(index) for index in range(16)], num_generations=4)
    assert counted.did == ["setup", "close"]
    assert [0.0, 1.0, 2.0, 3.0] in counted.groups
    assert counted.groups.count([4.0, None, 6.0, 7.0]) == 3
    assert result.rewards[0, :, 0].tolist() == [0, 10, 20, 30]
    assert result.status[1, :, 0].tolist() == [Status.OK, Status.ERROR, Status.OK, Status.OK]


def test_a_setup_that_fails_fails_the_batch_and_is_tried_again() -> None:

    class Flaky(StatefulReward):
        tries = 0

        def setup(self) -> None:
            Flaky.tries += 1
            if Flaky.tries == 1:
                raise ConnectionError("not there yet")

        def score(self, completion: str) -> float:
            return 1.0

    with Dispatcher([threaded(Flaky())], max_failure_rate=1.0) as dispatcher:
        result = dispatcher.score(completions=[""] * 100)
        assert (result.status == Status.ERROR).all()
        assert result.failures()[99].reason == "setup() failed: ConnectionError: not there yet"
        assert "in setup" in (result.failures()[99].traceback or "")
        assert (dispatcher.score(completions=[""] * 100).status == Status.OK).all()


@pytest.mark.usefixtures("no_new_threads")
def test_a_setup_that_hangs_is_abandoned() -> None:
    release = threading.Event()

    class Hangs(StatefulReward):
        def setup(self) -> None:
            release.wait(100)

        def score(self, completion: str) -> float:
            return 1.0

    with Dispatcher([threaded(Hangs(), setup_timeout=0.2)], max_failure_rate=1.0) as dispatcher:
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            result = dispatcher.score(completions=[""] * 10)
            eventually(lambda: ours(caught))
        assert (result.status == Status.ERROR).all()
        assert result.failures()[0].reason == "setup() did not end within the setup_timeout of 0.2 s"
        release.set()


def test_awaitables_of_sync_functions_are_awaited_where_they_are() -> None:
    loops = set()

    async def later(completion: str) -> float:
        loops.add(asyncio.get_running_loop())
        await asyncio.sleep(0)
        return float(completion)

    with pytest.warns(GuerdonWarning, match="lane='asyncio'"):
        result = scored(threaded(lambda completion: later(completion), limit=Limit(concurrency=1)), 20)
    assert result.rewards[:, 0, 0].tolist() == list(range(20))
    assert len(loops) == 1


def test_records_reach_the_result() -> None:
    def function(completion: str, log_extra: Any, log_metric: Any) -> dict[str, object]:
        log_extra("seen", [completion])
        log_metric("length", len(completion))
        return {"score": 1.0, "why": completion * 2}

    result = scored(threaded(function), 3)
    assert result.extra["seen"] == ["0", "1", "2"]


def test_several_threads_may_score_at_once() -> None:
    with Dispatcher([threaded(lambda completion: float(completion))]) as dispatcher:
        results: list[Any] = [None] * 8

        def score(index: int) -> None:
            results[index] = dispatcher.score(completions=[str(index)] * 200).rewards[:, 0, 0].tolist()

        threads = [threading.Thread(target=score, args=(index,)) for index in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert results == [[float(index)] * 200 for index in range(8)]


@pytest.mark.parametrize("busy", ["time.sleep(600)", "while True: pass"])
def test_the_interpreter_exits_with_calls_under_way(busy: str) -> None:
    """Not an abort, not a hang, and no noise."""
    code = f"""
import sys, time
from guerdon import Dispatcher, reward
def function(completion):
    {busy}
dispatcher = Dispatcher([reward(function, lane="thread", timeout=900)])
pending = dispatcher.submit(completions=["a"] * 20)
time.sleep(0.5)
sys.exit(0)
"""
    ended = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=250, check=False)
    assert (ended.returncode, ended.stderr) == (0, "")

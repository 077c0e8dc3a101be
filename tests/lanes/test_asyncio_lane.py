"""The asyncio lane, through a dispatcher: calls mean what they would mean in a task each."""

from __future__ import annotations

import asyncio
import contextvars
import functools
import threading
import time
import warnings
from collections.abc import Iterator
from typing import Any

import pytest

from guerdon import Dispatcher, Limit, StatefulReward, Status, group_reward, reward
from tests.lanes import lane_helpers
from tests.lanes.lane_helpers import looped, scored


@pytest.fixture
def no_new_threads() -> Iterator[None]:
    with lane_helpers.no_new_threads():
        yield


@pytest.mark.usefixtures("no_new_threads")
def test_values_come_back_in_order() -> None:
    async def function(completion: str) -> float:
        index = int(completion)
        if index % 3:
            await asyncio.sleep((index % 7) / 1000)
        return float(index)

    result = scored(looped(function), 1000)
    assert result.rewards[:, 0, 0].tolist() == list(range(1000))


def test_async_functions_of_all_kinds_come_here() -> None:
    async def plain(completion: str) -> float:
        return 1.0

    class Scorer:
        async def __call__(self, completion: str) -> float:
            return 2.0

        async def method(self, completion: str) -> float:
            return 3.0

    @functools.wraps(plain)
    def wrapped(completion: str) -> Any:
        return plain(completion)

    async def with_option(completion: str, *, value: float) -> float:
        return value

    functions = [
        reward(plain),
        reward(Scorer(), name="object"),
        reward(Scorer().method),
        reward(wrapped, name="wrapped"),
        reward(functools.partial(with_option, value=5.0), name="partial"),
        looped(lambda completion: 6.0, name="sync"),
    ]
    assert scored(functions, 2).rewards[0, 0].tolist() == [1.0, 2.0, 3.0, 1.0, 5.0, 6.0]


def test_return_values_become_cells() -> None:
    async def function(completion: str) -> object:
        return [1, None, True, {"score": 2.5, "why": "so"}, "3", float("nan"), 1e39, function("0")][int(completion)]

    with warnings.catch_warnings():
        # The coroutines that the list above makes and drops.
        warnings.simplefilter("ignore", RuntimeWarning)
        result = scored(looped(function), 8)
    assert result.status[:, 0, 0].tolist() == [Status.OK, Status.ABSTAINED, Status.OK, Status.OK, *[Status.ERROR] * 4]
    reasons = [failure.reason for failure in result.failures()]
    assert "a str ('3') is not a reward" in reasons[0]
    assert "float32" in reasons[2]
    assert "coroutine" in reasons[3]


async def _raise_in_a_task(error: BaseException) -> float:
    async def task() -> None:
        raise error

    await asyncio.create_task(task())
    return 1.0


@pytest.mark.filterwarnings("ignore:a task of a reward function raised")
def test_an_exception_fails_one_cell_whatever_it_is() -> None:
    """Neither the runner nor the loop ends by it."""

    async def function(completion: str) -> float:
        index = int(completion)
        if index == 0:
            raise ValueError("bad")
        if index == 1:
            raise SystemExit(3)
        if index == 2:
            raise KeyboardInterrupt
        if index == 3:
            raise asyncio.CancelledError
        if index == 4:
            raise GeneratorExit
        if index == 5:
            task = asyncio.current_task()
            assert task is not None
            task.cancel()
            await asyncio.sleep(1)
        if index == 6:
            return await _raise_in_a_task(SystemExit(4))
        if index == 7:
            return await _raise_in_a_task(KeyboardInterrupt())
        await asyncio.sleep(0.01)
        return 1.0

    result = scored(looped(function), 40)
    assert result.status[:, 0, 0].tolist() == [Status.ERROR] * 8 + [Status.OK] * 32
    first = result.failures()[0]
    assert first.reason == "ValueError: bad"
    assert first.traceback is not None
    assert "in function" in first.traceback
    assert "guerdon/_lanes" not in first.traceback


def test_a_self_cancellation_hits_no_other_call() -> None:

    async def function(completion: str) -> float:
        if completion == "0":
            task = asyncio.current_task()
            assert task is not None
            task.cancel()
        else:
            await asyncio.sleep(0)
        return 1.0

    result = scored(looped(function, limit=Limit(concurrency=1)), 10)
    assert (result.status == Status.OK).all()


def test_contexts_are_isolated() -> None:
    variable: contextvars.ContextVar[str] = contextvars.ContextVar("variable", default="clean")

    async def function(completion: str) -> float:
        assert variable.get() == "clean"
        variable.set(completion)
        if int(completion) % 2:
            await asyncio.sleep(0.001)
        assert variable.get() == completion
        return 1.0

    result = scored(looped(function), 500)
    assert (result.status == Status.OK).all(), result.failures()[:3]


def test_tasks_timeouts_shields_and_groups_work_as_in_a_task_of_their_own() -> None:
    async def child(value: float) -> float:
        await asyncio.sleep(0.001)
        return value

    async def function(completion: str) -> float:
        index = int(completion)
        assert asyncio.current_task() is not None
        kind = index % 5
        if kind == 0:
            return sum(await asyncio.gather(child(1.0), child(2.0)))
        if kind == 1:
            try:
                await asyncio.wait_for(asyncio.sleep(10), 0.01)
            except TimeoutError:
                return 3.0
        if kind == 2:
            return await asyncio.shield(child(3.0))
        if kind == 3:
            try:
                async with asyncio.timeout(0.01):
                    await asyncio.sleep(10)
            except TimeoutError:
                return 3.0
        if kind == 4:
            try:
                async with asyncio.TaskGroup() as group:
                    group.create_task(asyncio.sleep(10))
                    group.create_task(_raise_in_a_task(ValueError("x")))
            except Exception as error:
                return 3.0 if type(error).__name__ == "ExceptionGroup" else 0.0
        return 3.0

    result = scored(looped(function, limit=Limit(concurrency=7)), 100)
    assert result.rewards[:, 0, 0].tolist() == [3.0] * 100, result.failures()[:3]


def test_many_coroutines_at_once() -> None:
    """All wait until two thousand do."""
    now = 0
    many = asyncio.Event()

    async def function(completion: str) -> float:
        nonlocal now
        now += 1
        if now == 2000:
            many.set()
        await many.wait()
        return 1.0

    result = scored(looped(function, limit=Limit(concurrency=10_000)), 10_000)
    assert (result.status == Status.OK).all()


def test_no_more_than_the_limit_at_once() -> None:
    most = now = wanted = 0
    many = asyncio.Event()

    async def function(completion: str) -> float:
        nonlocal most, now
        now += 1
        most = max(most, now)
        if now == wanted:
            many.set()
        await many.wait()
        await asyncio.sleep(0.1)  # in which more could begin
        now -= 1
        return 1.0

    wanted = 5
    scored(looped(function, limit=Limit(concurrency=5)), 40)
    assert most == 5
    most, wanted, many = 0, 256, asyncio.Event()
    scored(looped(function), 1000)
    assert most == 256


def test_row_15_waits_overlap_up_to_the_limit() -> None:
    async def function(completion: str) -> float:
        await asyncio.sleep(1)
        return 1.0

    with Dispatcher([looped(function)]) as dispatcher:
        dispatcher.score(completions=[""])
        start = time.monotonic()
        dispatcher.score(completions=[""] * 512)
        # Two waves, not minutes; the figure of the row is a bench.
        assert time.monotonic() - start < 40


def test_clients_keep_their_loop_over_batches() -> None:
    loops = []

    async def function(completion: str) -> float:
        loops.append(asyncio.get_running_loop())
        return 1.0

    async def other(completion: str) -> float:
        loops.append(asyncio.get_running_loop())
        return 1.0

    with Dispatcher([looped(function, name="a", loop="shared"), looped(other, name="b", loop="shared")]) as dispatcher:
        for _ in range(3):
            dispatcher.score(completions=["a", "b"])
    assert len(loops) == 12
    assert len(set(loops)) == 1
    assert loops[0].is_closed()
    loops.clear()
    scored([looped(function, name="a"), looped(other, name="b")], 2)
    assert len(set(loops)) == 2


def test_batch_functions_of_trl() -> None:
    loops = set()

    async def first(prompts: list[str], completions: list[str], **kwargs: Any) -> list[float]:
        loops.add(asyncio.get_running_loop())
        await asyncio.sleep(0)
        return [float(completion) for completion in completions]

    async def second(completions: list[str], **kwargs: Any) -> list[float | None]:
        loops.add(asyncio.get_running_loop())
        return [None] * len(completions)

    with Dispatcher([first, second]) as dispatcher:
        result = dispatcher.score(prompts=["p"] * 6, completions=[str(index) for index in range(6)], num_generations=3)
    assert result.rewards[:, :, 0].tolist() == [[0, 1, 2], [3, 4, 5]]
    assert (result.status[:, :, 1] == Status.ABSTAINED).all()
    assert len(loops) == 1


def test_group_functions() -> None:
    @group_reward
    async def spread(completions: list[str]) -> list[object]:
        await asyncio.sleep(0)
        return [float(completions[0]), "bad", None]

    result = scored(spread, 9, num_generations=3)
    assert result.rewards[:, 0, 0].tolist() == [0, 3, 6]
    assert result.status[:, :, 0].tolist() == [[Status.OK, Status.ERROR, Status.ABSTAINED]] * 3


class Client(StatefulReward):
    def __init__(self) -> None:
        self.did: list[str] = []
        self.loops: set[object] = set()

    async def setup(self) -> None:
        self.loops.add(asyncio.get_running_loop())
        await asyncio.sleep(0.05)
        self.did.append("setup")

    async def close(self) -> None:
        self.loops.add(asyncio.get_running_loop())
        await asyncio.sleep(0.01)
        self.did.append("close")

    async def score(self, completion: str) -> float:
        self.loops.add(asyncio.get_running_loop())
        assert self.did == ["setup"]
        await asyncio.sleep(0.001)
        if completion == "5":
            raise ValueError("five")
        return float(completion)

    async def finish_group(self, scores: list[float | None], completions: list[str]) -> list[float | None]:
        await asyncio.sleep(0)
        return [None if score is None else score * 10 for score in scores]


def test_row_28_a_stateful_reward_is_set_up_once_and_closed_once() -> None:
    client = Client()
    with Dispatcher([looped(client)], max_failure_rate=1.0) as dispatcher:
        for _ in range(3):
            result = dispatcher.score(completions=[str(index) for index in range(16)], num_generations=4)
    assert client.did == ["setup", "close"]
    assert len(client.loops) == 1
    assert result.rewards[0, :, 0].tolist() == [0, 10, 20, 30]
    assert result.status[1, :, 0].tolist() == [Status.OK, Status.ERROR, Status.OK, Status.OK]


def test_a_setup_that_fails_or_hangs_fails_the_batch_and_is_tried_again() -> None:

    class Flaky(StatefulReward):
        tries = 0

        async def setup(self) -> None:
            Flaky.tries += 1
            if Flaky.tries == 1:
                raise ConnectionError("not there yet")
            if Flaky.tries == 2:
                await asyncio.sleep(100)

        async def score(self, completion: str) -> float:
            return 1.0

    with Dispatcher([looped(Flaky(), setup_timeout=3.0)], max_failure_rate=1.0) as dispatcher:
        result = dispatcher.score(completions=[""] * 100)
        assert (result.status == Status.ERROR).all()
        assert result.failures()[99].reason == "setup() failed: ConnectionError: not there yet"
        assert "in setup" in (result.failures()[99].traceback or "")
        result = dispatcher.score(completions=[""] * 100)
        assert result.failures()[0].reason == "setup() did not end within the setup_timeout of 3 s"
        assert (dispatcher.score(completions=[""] * 100).status == Status.OK).all()


def test_records_reach_the_result() -> None:
    async def function(completion: str, log_extra: Any, log_metric: Any) -> dict[str, object]:
        await asyncio.sleep(int(completion) / 1000)
        log_extra("seen", [completion])
        await asyncio.sleep((5 - int(completion)) / 1000)
        log_metric("length", len(completion))
        return {"score": 1.0, "why": completion}

    result = scored(looped(function), 5)
    assert result.extra["seen"] == ["0", "1", "2", "3", "4"]


def test_several_threads_may_score_at_once() -> None:
    async def function(completion: str) -> float:
        await asyncio.sleep(0)
        return float(completion)

    with Dispatcher([looped(function)]) as dispatcher:
        results: list[Any] = [None] * 8

        def score(index: int) -> None:
            results[index] = dispatcher.score(completions=[str(index)] * 200).rewards[:, 0, 0].tolist()

        threads = [threading.Thread(target=score, args=(index,)) for index in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert results == [[float(index)] * 200 for index in range(8)]

"""The asyncio lane, through a dispatcher: calls mean what they would mean in a task each."""

from __future__ import annotations

import asyncio
import time

import pytest

from guerdon import Dispatcher, Limit, StatefulReward, Status
from tests.lanes.lane_helpers import looped, scored


@pytest.mark.filterwarnings("ignore:a task of a reward function raised")
@pytest.mark.parametrize("error", [SystemExit, KeyboardInterrupt])
def test_an_exit_in_a_task_of_a_call_fails_that_call_alone(error: type[BaseException]) -> None:
    async def task() -> None:
        raise error

    async def function(completion: str) -> float:
        await (asyncio.create_task(task()) if completion == "1" else asyncio.sleep(0.01))
        return 1.0

    result = scored(looped(function), 20)
    assert result.status[:, 0, 0].tolist() == [Status.OK, Status.ERROR, *[Status.OK] * 18]


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

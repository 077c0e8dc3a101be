"""The asyncio lane: how calls, loops and the interpreter end; what blocks a loop."""

from __future__ import annotations

import asyncio
import sys
import threading
import time
import warnings

import pytest

from guerdon import Dispatcher, GuerdonWarning, Limit, StatefulReward, Status, reward
from guerdon._system.gil import has_gil
from tests.lanes.lane_helpers import eventually, looped, no_new_threads, ours, scored
from tests.processes import eventfds


def test_a_call_past_its_timeout_is_cancelled() -> None:
    cleaned = []

    async def function(completion: str) -> float:
        if completion == "3":
            try:
                await asyncio.sleep(100)
            finally:
                cleaned.append(completion)
        return 1.0

    start = time.monotonic()
    result = scored(looped(function, timeout=2.5), 20)
    assert time.monotonic() - start < 60
    assert cleaned == ["3"]
    [failure] = result.failures()
    assert failure.sample == 3
    assert failure.status == Status.TIMEOUT
    assert "2.5 s" in failure.reason
    assert 2.5 <= failure.run_s < 60
    assert "asyncio.sleep(100)" in (failure.traceback or "")


@no_new_threads()
def test_a_coroutine_that_ignores_cancellation_is_left_to_itself() -> None:
    release = threading.Event()

    async def function(completion: str) -> float:
        while completion == "0" and not release.is_set():
            try:
                await asyncio.sleep(0.02)
            except asyncio.CancelledError:
                pass
        return 1.0

    limit = Limit(concurrency=1)
    with Dispatcher([looped(function, timeout=2.0, grace=0.2, limit=limit)], max_failure_rate=1.0) as dispatcher:
        start = time.monotonic()
        with pytest.warns(GuerdonWarning, match="ignores its cancellation"):
            result = dispatcher.score(completions=["0", "1", "2"])
        assert time.monotonic() - start < 40  # without end, if it were waited for
        assert result.status[:, 0, 0].tolist() == [Status.TIMEOUT, Status.OK, Status.OK]
        release.set()
        assert dispatcher.score(completions=["1"]).rewards.item() == 1.0


@pytest.mark.skipif(not has_gil(), reason="without the GIL the code of a thread is not readable")
def test_row_16_a_blocking_function_delays_no_other_loop_and_is_named() -> None:
    ticked, gaps = threading.Event(), []

    async def blocks(completion: str) -> float:
        if completion == "0":
            assert ticked.wait(60)  # the line to be named
        return 1.0

    async def ticks(completion: str) -> float:
        if completion == "0":
            for _ in range(150):  # for 1.5 s at least, none of which waits for the other loop
                before = time.monotonic()
                await asyncio.sleep(0.01)
                gaps.append(time.monotonic() - before - 0.01)
            ticked.set()
        return 1.0

    line = blocks.__code__.co_firstlineno + 2
    with pytest.warns(
        GuerdonWarning, match=rf"'blocks' blocks its event loop.*test_asyncio_shutdown\.py:{line}"
    ) as caught:
        result = scored([reward(blocks), reward(ticks)], 4)
    assert (result.status == Status.OK).all()
    [warning] = ours(list(caught))
    assert warning.filename == __file__
    assert warning.lineno == line
    assert max(gaps) < 20  # the other loop is blocked until this one has done all of it


@pytest.mark.parametrize("busy", [0, 2])
def test_row_16_c_code_that_keeps_the_gil_is_named(busy: int) -> None:
    """Whoever gets the GIL first: the supervisor, another thread or the loop itself."""

    def took(steps: int) -> float:
        start = time.monotonic()
        sum(range(steps))
        return time.monotonic() - start

    def spin() -> None:
        while not over.is_set():
            pass

    steps = int(1_000_000 * 1.5 / min(took(1_000_000) for _ in range(9)))
    over = threading.Event()

    async def blocks(completion: str) -> float:
        sum(range(steps))
        return 1.0

    line = blocks.__code__.co_firstlineno
    threads = [threading.Thread(target=spin) for _ in range(busy)]
    with warnings.catch_warnings(record=True) as caught, Dispatcher([reward(blocks)]) as dispatcher:
        warnings.simplefilter("always")
        for thread in threads:
            thread.start()
        try:
            dispatcher.score(completions=[""])
        finally:
            over.set()
            for thread in threads:
                thread.join()
        eventually(lambda: ours(caught))
    [warning] = ours(caught)
    assert "'blocks'" in str(warning.message)
    assert "blocks its event loop" in str(warning.message)
    assert warning.filename == __file__
    assert warning.lineno in (line, line + 1)


SAMPLES = [str(index) for index in range(64)]


@pytest.mark.skipif(not has_gil(), reason="without the GIL the code of a thread is not readable")
@pytest.mark.parametrize(
    ("seconds", "at_a_time", "samples"),
    [
        (0.02, 4, SAMPLES),  # in one turn of the loop for 80 ms
        (0.15, 1, SAMPLES[:24]),  # as the constructor of a client that reads certificates
    ],
)
def test_calls_that_block_their_loop_for_milliseconds_are_named(
    seconds: float, at_a_time: int, samples: list[str]
) -> None:
    async def blocks(completion: str) -> float:
        await asyncio.sleep(0.001)
        time.sleep(seconds)
        return float(completion)

    few = reward(blocks, limit=Limit(concurrency=at_a_time))
    with warnings.catch_warnings(record=True) as caught, Dispatcher([few]) as dispatcher:
        warnings.simplefilter("always")
        end = time.monotonic() + 60
        while not ours(caught) and time.monotonic() < end:
            dispatcher.score(completions=samples)
        dispatcher.score(completions=samples)
    [warning] = ours(caught)
    assert "'blocks' blocks its event loop in each call" in str(warning.message)
    assert warning.filename == __file__
    assert warning.lineno == blocks.__code__.co_firstlineno + 2


def test_calls_that_let_their_loop_turn_are_not_named() -> None:
    async def polite(completion: str) -> float:
        for _ in range(30):
            sum(range(20_000))  # under a millisecond
            await asyncio.sleep(0)
        return float(completion)

    with warnings.catch_warnings(record=True) as caught, Dispatcher([reward(polite)]) as dispatcher:
        warnings.simplefilter("always")
        start = time.monotonic()
        while time.monotonic() < start + 1.5:
            dispatcher.score(completions=SAMPLES)
    assert not ours(caught)


@no_new_threads()
@pytest.mark.filterwarnings("ignore::guerdon.GuerdonWarning")
def test_a_loop_that_hangs_is_replaced() -> None:
    """What was not started runs on another loop; the calls on the blocked one time out."""
    release = threading.Event()

    async def function(completion: str) -> float:
        if completion == "2":
            release.wait(100)
        return 1.0

    limit = Limit(concurrency=1)
    with Dispatcher([looped(function, timeout=2.0, grace=0.1, limit=limit)], max_failure_rate=1.0) as dispatcher:
        start = time.monotonic()
        result = dispatcher.score(completions=[str(index) for index in range(6)])
        assert time.monotonic() - start < 60
        assert result.status[:, 0, 0].tolist() == [Status.OK, Status.OK, Status.TIMEOUT, *[Status.OK] * 3]
        assert dispatcher.score(completions=["0"]).rewards.item() == 1.0
        release.set()


@no_new_threads()
def test_tasks_that_a_function_leaves_are_ended_with_the_loop() -> None:
    ended = []
    loops = set()
    tasks = []

    async def background() -> None:
        try:
            await asyncio.sleep(100)
        finally:
            ended.append(True)

    async def function(completion: str) -> float:
        loops.add(asyncio.get_running_loop())
        tasks.append(asyncio.create_task(background()))
        return 1.0

    scored(looped(function), 3)
    assert ended == [True] * 3
    assert [loop.is_closed() for loop in loops] == [True]


class WaitsToSetUp(StatefulReward):
    """Its calls never start."""

    def __init__(self) -> None:
        self.waits = threading.Event()

    async def setup(self) -> None:
        self.waits.set()
        await asyncio.sleep(250)

    async def score(self, completion: str) -> float:
        return 1.0


@pytest.mark.skipif(sys.platform != "linux", reason="counts what /proc tells of")
def test_loops_that_end_with_calls_in_hand_keep_nothing_of_their_batch() -> None:
    """Neither calls that wait for `setup()`, nor those of a blocked loop, nor those in flight."""
    release = threading.Event()
    blocked = threading.Event()

    async def blocks(completion: str) -> float:
        blocked.set()
        release.wait(100)
        return 1.0

    async def waits(completion: str) -> float:
        await asyncio.sleep(250)
        return 1.0

    def closed_with_calls_in_hand() -> None:
        slow = WaitsToSetUp()
        functions = [slow, looped(blocks, name="blocks", loop="blocked"), looped(waits, limit=Limit(concurrency=1))]
        with Dispatcher(functions, max_failure_rate=1.0) as dispatcher:
            pending = dispatcher.submit(completions=["0", "1", "2"])
            assert slow.waits.wait(60)
            assert blocked.wait(60)
            release.set()
            pending.cancel()
        blocked.clear()
        release.clear()

    with no_new_threads():
        closed_with_calls_in_hand()  # the runtime's own descriptors are there from now on
    before = eventfds()
    with no_new_threads():
        for _ in range(5):
            closed_with_calls_in_hand()
    eventually(lambda: eventfds() <= before)

"""The asyncio lane: calls mean what a task each would mean, start in the scheduler's order, and
leave their loop its turns."""

from __future__ import annotations

import asyncio
import itertools
import socket
import threading
import time

import pytest

from guerdon import Dispatcher, Limit, StatefulReward, Status
from tests.clock import eventually
from tests.lanes.lane_helpers import looped, scored
from tests.simple import streamed


class Groups(StatefulReward):
    """Waits, and notes what it was called for. Calls beyond the `first` wait for `go` too."""

    def __init__(self, seconds: float, first: int = 1_000_000) -> None:
        self.seconds = seconds
        self.first = first
        self.go = threading.Event()
        self.started: list[str] = []

    async def score(self, completion: str) -> float:
        self.started.append(completion)
        if len(self.started) > self.first and not self.go.is_set():
            await asyncio.to_thread(self.go.wait, 100)
        await asyncio.sleep(self.seconds)
        return float(completion)

    async def finish_group(self, scores: list[float | None]) -> list[float | None]:
        return [score if score is None else score + 1 for score in scores]


def test_a_group_is_finished_before_the_backlog() -> None:
    """512 calls, 32 at a time: the first groups are there while the second or third wave runs."""
    function = Groups(0.1, first=32 * 4)
    with Dispatcher([looped(function, limit=Limit(concurrency=32))]) as dispatcher:
        pending = dispatcher.submit(completions=[str(index) for index in range(512)], num_generations=8)
        groups = iter(pending.groups(timeout=60))
        assert next(groups).index < 4
        function.go.set()
        order = [group.index for group in groups]
        assert sorted(order[:15]) == order[:15] or max(order[:15]) < 32  # groups in order, about
        result = pending.result()
    assert (result.status == Status.OK).all()
    assert result.rewards[0, :, 0].tolist() == [float(index + 1) for index in range(8)]


def test_a_retry_of_an_older_batch_goes_before_the_backlog_of_a_newer_one() -> None:
    started: list[str] = []

    async def function(completion: str) -> float:
        started.append(completion)
        if completion == "old" and started.count("old") == 1:
            raise ValueError("again")
        await asyncio.sleep(0.01)
        return 1.0

    with Dispatcher([looped(function, retries=3, limit=Limit(concurrency=4))]) as dispatcher:
        older = dispatcher.submit(completions=["old"])
        newer = dispatcher.submit(completions=["new"] * 400)
        assert older.result().rewards.item() == 1.0
        # The backoff is 0.2 s at most, in which eighty newer calls or so are run.
        assert started.index("old", started.index("old") + 1) < 250
        assert (newer.result().status == Status.OK).all()


def test_the_last_call_of_a_batch_waits_for_those_of_later_batches() -> None:
    """Nothing was left to start when it suspended."""
    started: list[str] = []
    all_started = asyncio.Event()

    async def function(completion: str) -> float:
        started.append(completion)
        if len(started) == 3:
            all_started.set()
        await all_started.wait()
        return float(completion)

    with Dispatcher([looped(function)]) as dispatcher:
        batches = []
        for completion in ("0", "1", "2"):
            batches.append(dispatcher.submit(completions=[completion]))
            eventually(lambda last=completion: last in started)
        assert [batch.result(timeout=60).rewards.item() for batch in batches] == [0.0, 1.0, 2.0]


def test_cheap_calls_that_come_to_take_long_are_taken_back() -> None:
    """The loop has thousands of cheap ones waiting; once they take long it has those it runs."""
    function = Groups(0.0)
    with Dispatcher([looped(function, limit=Limit(concurrency=16))]) as dispatcher:
        for _ in range(3):
            dispatcher.score(completions=["0"] * 3000, num_generations=3000)
        function.seconds = 0.3
        newer = dispatcher.submit(completions=["1"] * 96, num_generations=16)
        time.sleep(0.15)
        older = dispatcher.submit(completions=["2"] * 16, num_generations=16)
        newer.cancel()
        assert (older.result().rewards == 3.0).all()


def test_single_samples_come_in_any_number() -> None:
    """Each is a frame of its own where the loop is idle; what waits comes together."""

    async def function(completion: str) -> float:
        await asyncio.sleep(0)
        return float(completion)

    with Dispatcher([looped(function)]) as dispatcher:
        result = streamed(dispatcher, *({"completions": [str(index)]} for index in range(3000)))
        assert result.rewards[:, 0, 0].tolist() == list(range(3000))


CALLS = 4000


def spin() -> float:
    """100 µs of this thread."""
    end = time.perf_counter() + 1e-4
    while time.perf_counter() < end:
        pass
    return 1.0


class Beside(StatefulReward):
    """A timer and a socket on the loop of calls that never suspend."""

    def __init__(self) -> None:
        self.timers = self.answers = 0
        self.tasks: list[asyncio.Task[None]] = []

    async def setup(self) -> None:
        self.ends = socket.socketpair()
        for end in self.ends:
            end.setblocking(False)
        self.tasks = [asyncio.create_task(work) for work in (self.wake_up(), self.ask(), self.answer())]

    async def close(self) -> None:
        for task in self.tasks:
            task.cancel()
        await asyncio.gather(*self.tasks, return_exceptions=True)
        for end in self.ends:
            end.close()

    async def wake_up(self) -> None:
        while True:
            await asyncio.sleep(0.001)
            self.timers += 1

    async def ask(self) -> None:
        loop = asyncio.get_running_loop()
        while True:
            await loop.sock_sendall(self.ends[0], b"?")
            await loop.sock_recv(self.ends[0], 1)
            self.answers += 1

    async def answer(self) -> None:
        loop = asyncio.get_running_loop()
        while True:
            await loop.sock_sendall(self.ends[1], await loop.sock_recv(self.ends[1], 1))

    async def score(self, completion: str) -> float:
        return spin()


def test_timers_and_sockets_go_on_beside_calls_that_never_suspend() -> None:
    beside = Beside()
    with Dispatcher([beside]) as dispatcher:
        dispatcher.score(completions=["the first"])
        timers, answers = beside.timers, beside.answers
        result = dispatcher.score(completions=["more"] * CALLS)
        timers, answers = beside.timers - timers, beside.answers - answers
    assert (result.status == Status.OK).all()
    # 400 ms of calls at least. A turn every 2 ms makes a hundred of either; with turns that grew
    # longer there were ten.
    assert timers > 30
    assert answers > 30


def test_functions_that_share_a_loop_take_turns() -> None:
    """None has to wait until another has run out of calls."""
    order: list[str] = []

    async def one(completion: str) -> float:
        order.append("one")
        return spin()

    async def two(completion: str) -> float:
        order.append("two")
        return spin()

    with Dispatcher([looped(one, name="one", loop="shared"), looped(two, name="two", loop="shared")]) as dispatcher:
        dispatcher.score(completions=[str(n) for n in range(CALLS // 2)])
    changes = sum(before != after for before, after in itertools.pairwise(order))
    assert changes > 20, "each a turn of 2 ms, 400 ms in all"


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


def test_many_coroutines_at_once() -> None:
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

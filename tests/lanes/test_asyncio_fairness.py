"""The asyncio lane: calls that never suspend leave their loop its turns."""

from __future__ import annotations

import asyncio
import itertools
import socket
import time

from guerdon import Dispatcher, StatefulReward, Status
from tests.lanes.lane_helpers import looped

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

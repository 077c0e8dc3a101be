"""Lag of other tasks on a loop of the asyncio lane while a batch of calls that never suspend runs.

    python -m pytest benches/python/bench_asyncio_lane_lag.py --benchmark-only

On the loop that runs the batch, a task sleeps a millisecond at a time and notes how late it wakes
up, and another sends a byte over a pair of sockets and notes when the answer of a third is there.
Compared with the same under `asyncio.gather`. Target: p99 of the lag under 10 ms.
"""

from __future__ import annotations

import asyncio
import socket
import statistics
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from guerdon import Dispatcher, StatefulReward

SAMPLES = 100_000
ROUNDS = 20
PAUSE = 0.001
TITLE = f"a loop that runs {SAMPLES} coroutines which never suspend: ms"

pytestmark = pytest.mark.timeout(600)


class OtherTasks:
    """A timer and a socket on the running loop."""

    def __init__(self) -> None:
        self.lags: list[float] = []
        self.answers: list[float] = []
        self.ends = socket.socketpair()
        for end in self.ends:
            end.setblocking(False)
        self.tasks = [asyncio.create_task(work) for work in (self.wake_up(), self.ask(), self.answer())]

    async def wake_up(self) -> None:
        while True:
            start = time.perf_counter()
            await asyncio.sleep(PAUSE)
            self.lags.append(time.perf_counter() - start - PAUSE)

    async def ask(self) -> None:
        loop = asyncio.get_running_loop()
        while True:
            start = time.perf_counter()
            await loop.sock_sendall(self.ends[0], b"?")
            await loop.sock_recv(self.ends[0], 1)
            self.answers.append(time.perf_counter() - start)
            await asyncio.sleep(PAUSE)

    async def answer(self) -> None:
        loop = asyncio.get_running_loop()
        while True:
            await loop.sock_sendall(self.ends[1], await loop.sock_recv(self.ends[1], 1))

    async def stop(self) -> None:
        for task in self.tasks:
            task.cancel()
        await asyncio.gather(*self.tasks, return_exceptions=True)
        for end in self.ends:
            end.close()


async def trivial(completion: str) -> float:
    return 1.0


class Lane(StatefulReward):
    """`trivial`, with the other tasks on its loop."""

    async def setup(self) -> None:
        self.others = OtherTasks()

    async def score(self, completion: str) -> float:
        return 1.0

    async def close(self) -> None:
        await self.others.stop()


Contender = tuple[Callable[[list[str]], object], Callable[[], OtherTasks]]


@contextmanager
def lane() -> Iterator[Contender]:
    reward = Lane()
    with Dispatcher([reward]) as dispatcher:
        yield lambda texts: dispatcher.score(completions=texts), lambda: reward.others


@contextmanager
def gather() -> Iterator[Contender]:
    async def start() -> OtherTasks:
        return OtherTasks()

    async def run(texts: list[str]) -> None:
        await asyncio.gather(*[trivial(text) for text in texts])

    with asyncio.Runner() as runner:
        others = runner.run(start())
        yield lambda texts: runner.run(run(texts)), lambda: others
        runner.run(others.stop())


@pytest.mark.parametrize(
    ("name", "start"), [("guerdon, asyncio lane", lane), ("asyncio.gather", gather)], ids=["lane", "gather"]
)
def test_lag(benchmark: Any, tables: Any, name: str, start: Any) -> None:
    texts = [str(index) for index in range(2000 if benchmark.disabled else SAMPLES)]
    with start() as (run, others):
        for _ in range(1 if benchmark.disabled else 3):
            run(texts)
        lags, answers = others().lags, others().answers
        lags.clear()
        answers.clear()
        benchmark.pedantic(lambda: run(texts), rounds=1 if benchmark.disabled else ROUNDS)
        found = {"a timer's lag": sorted(lags), "a socket's answer": sorted(answers)}
    if benchmark.disabled:
        return
    for what, times in found.items():
        cells = {"p50": statistics.median(times), "p99": times[len(times) * 99 // 100], "max": times[-1]}
        target = "< 10, p99" if start is lane and "lag" in what else ""
        tables.add(TITLE, f"{name}: {what}", {which: seconds * 1e3 for which, seconds in cells.items()}, target)

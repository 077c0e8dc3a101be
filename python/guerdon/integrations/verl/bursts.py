"""Scores together what comes together: verl asks for each response by itself, often for thousands
in one moment.

- B-1  Responses that come in the same turn of the loop are one batch, of at most `MOST`: so that a
       batch of verl's costs a few of the engine's, each with descriptors of its own, and a response
       that takes long holds up few others.
- B-2  Each gets its own place in the result, in the order in which they came; an error of the batch
  goes to each.

All of it runs on one event loop: no locks.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Final, Generic, TypeVar

__all__ = ["MOST", "Bursts"]

S = TypeVar("S")
R = TypeVar("R")

MOST: Final = 64


class Bursts(Generic[S, R]):
    """The responses of one reward worker that are on their way to the engine.

    Args:
        score: Scores some responses, in order.
    """

    def __init__(self, score: Callable[[list[S]], Awaitable[R]]) -> None:
        self._score = score
        self._waiting: list[tuple[S, asyncio.Future[tuple[R, int]]]] = []
        self._tasks: set[asyncio.Task[None]] = set()  # a loop keeps only weak references

    async def add(self, sample: S) -> tuple[R, int]:
        """Waits until the sample's batch is scored: the result, and the sample's index in it."""
        loop = asyncio.get_running_loop()
        future: asyncio.Future[tuple[R, int]] = loop.create_future()
        if not self._waiting:
            loop.call_soon(self._send)
        self._waiting.append((sample, future))
        return await future

    def _send(self) -> None:
        waiting, self._waiting = self._waiting, []
        for first in range(0, len(waiting), MOST):
            task = asyncio.get_running_loop().create_task(self._run(waiting[first : first + MOST]))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    async def _run(self, burst: list[tuple[S, asyncio.Future[tuple[R, int]]]]) -> None:
        try:
            result = await self._score([sample for sample, _ in burst])
        except Exception as error:
            for _, future in burst:
                if not future.done():
                    future.set_exception(error)
        else:
            for index, (_, future) in enumerate(burst):
                if not future.done():
                    future.set_result((result, index))
        finally:  # the loop ends, and this with it
            for _, future in burst:
                future.cancel()

"""Joins single requests into batches: requests in the same turn of a loop are one batch.

- A batch holds at most `most` items, all of one key; each item gets its own answer as it comes.
- coalescing-1  A `DataError` fails its own item alone: the batch is split until that item is found.
- coalescing-2  A cancelled caller harms no other; a batch that nobody waits for is cancelled.

All of it runs on one event loop, so it needs no locks.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable, Hashable
from contextlib import aclosing
from typing import Generic, TypeVar

from guerdon.errors import DataError, GuerdonError

__all__ = ["Coalescer"]

S = TypeVar("S")
R = TypeVar("R")


class Coalescer(Generic[S, R]):
    """Puts the items of one event loop into batches.

    Args:
        run: Runs some items and yields (index, answer) for each, in any order.
        most: The most items of a batch.
    """

    def __init__(self, run: Callable[[list[S]], AsyncGenerator[tuple[int, R], None]], most: int) -> None:
        self._run = run
        self._most = most
        self._waiting: dict[Hashable, list[tuple[S, asyncio.Future[R]]]] = {}
        self._tasks: set[asyncio.Task[None]] = set()  # a loop keeps only weak references

    async def add(self, item: S, key: Hashable = None) -> R:
        """Waits for the answer to `item`, in a batch with others of the same `key`."""
        loop = asyncio.get_running_loop()
        future: asyncio.Future[R] = loop.create_future()
        if not self._waiting:
            loop.call_soon(self._send)
        self._waiting.setdefault(key, []).append((item, future))
        try:
            return await future
        finally:
            # Otherwise an error and the future hold each other until Python's collector runs.
            del future

    def _send(self) -> None:
        waiting, self._waiting = self._waiting, {}
        for entries in waiting.values():
            entries = [entry for entry in entries if not entry[1].done()]  # cancelled meanwhile
            for first in range(0, len(entries), self._most):
                self._start(entries[first : first + self._most])

    def _start(self, batch: list[tuple[S, asyncio.Future[R]]]) -> None:
        task = asyncio.get_running_loop().create_task(self._answer(batch))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        futures = [future for _, future in batch]

        def left(future: asyncio.Future[R]) -> None:
            if future.cancelled() and all(other.done() for other in futures):
                task.cancel()  # coalescing-2

        for future in futures:
            future.add_done_callback(left)

    async def _answer(self, batch: list[tuple[S, asyncio.Future[R]]]) -> None:
        try:
            await self._deliver(batch)
        except Exception as error:
            _fail(batch, error)
        finally:  # the loop ends, and this task with it
            _fail(batch, None)
            batch.clear()  # as above: the traceback holds it

    async def _deliver(self, batch: list[tuple[S, asyncio.Future[R]]]) -> None:
        try:
            async with aclosing(self._run([item for item, _ in batch])) as answers:
                async for index, answer in answers:
                    future = batch[index][1]
                    if not future.done():
                        future.set_result(answer)
        except DataError:  # before any call: no answer came yet
            if len(batch) == 1:
                raise
            half = len(batch) // 2
            await asyncio.gather(self._answer(batch[:half]), self._answer(batch[half:]))
        else:
            if not all(future.done() for _, future in batch):
                raise GuerdonError("a batch ended without an answer for each of its samples")


def _fail(batch: list[tuple[S, asyncio.Future[R]]], error: Exception | None) -> None:
    """Ends the requests without an answer, by an error or cancelled."""
    for _, future in batch:
        if error is None:
            future.cancel()
        elif not future.done():
            future.set_exception(error)

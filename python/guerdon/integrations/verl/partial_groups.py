"""A group that is scored while it fills: what takes one response does not wait for the others of its prompt.

- E-1  Functions of one response start when it comes, those of a whole group with the last one; the order within the group is that
       of verl's numbers, never that of arrival.
- E-2  The fields are those of the group's first response: what a later one lacks is None there, what it has beyond them is left out.
- E-3  What can't be scored is told when the group is asked for.

All of it runs on one event loop: no locks.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

from guerdon.dispatcher import Dispatcher
from guerdon.errors import GuerdonError
from guerdon.integrations.verl.sample import Sample
from guerdon.pending import OpenBatch
from guerdon.results import RewardBatch

__all__ = ["Early"]


class Early:
    """One group on its way to the engine.

    Args:
        dispatcher: Started by the first group, beside the loop.
        size: Responses of the group.
        columns: What `OpenBatch.add` takes of a response.
        taken: What the result goes through.
    """

    def __init__(
        self,
        dispatcher: Dispatcher,
        size: int,
        columns: Callable[[list[Sample]], dict[str, Any]],
        taken: Callable[[Awaitable[RewardBatch]], Awaitable[RewardBatch]],
    ) -> None:
        self._columns = columns
        self._taken = taken
        self._names: list[str] | None = None  # of the first response (E-2)
        self._waiting: list[tuple[int, Sample]] = []  # until the stream is there
        self._error: GuerdonError | None = None
        self._stream: asyncio.Future[OpenBatch] = asyncio.ensure_future(
            asyncio.to_thread(dispatcher.stream, num_generations=size)
        )
        self._stream.add_done_callback(self._send)

    def add(self, number: int, sample: Sample) -> None:
        """The response with this number in the group, which no other has."""
        self._waiting.append((number, sample))
        if self._stream.done():
            self._send(self._stream)

    async def result(self) -> RewardBatch:
        """The whole group, once all its responses were added.

        Raises:
            DataError: E-3.
            RewardFailureError: Too many failed.
        """
        stream = await self._stream
        self._send(self._stream)
        if self._error is not None:
            raise self._error
        stream.finish()
        try:
            return await self._taken(stream.aresult())
        except asyncio.CancelledError:
            stream.cancel()
            raise

    def cancel(self) -> None:
        """Gives the group up."""
        self._stream.add_done_callback(_cancel)

    def _send(self, opened: asyncio.Future[OpenBatch]) -> None:
        waiting, self._waiting = self._waiting, []
        if opened.cancelled() or opened.exception() is not None or self._error is not None:
            return  # told by `result`
        stream = opened.result()
        try:
            for number, sample in waiting:
                columns = self._columns([sample])
                self._names = self._names or list(columns)
                stream.add(indices=[number], **{name: columns.get(name, [None]) for name in self._names})
        except GuerdonError as error:
            self._error = error
            stream.cancel()


def _cancel(opened: asyncio.Future[OpenBatch]) -> None:
    if not opened.cancelled() and opened.exception() is None:
        opened.result().cancel()

"""A group that is scored while it fills: a response's own functions don't wait for the others.

Functions of one response start when it comes, those of a whole group with the last one. Columns are
those of the group's first response: keys that a later one lacks are None, and keys beyond them are
left out. An error is raised when the group's result is asked for. One event loop: no locks.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

from guerdon._batch.pending import OpenBatch
from guerdon._batch.trainer_state import StepAlone
from guerdon.dispatcher import Dispatcher
from guerdon.errors import GuerdonError
from guerdon.integrations.verl.reward_output import Scored
from guerdon.integrations.verl.sample import Response
from guerdon.results import RewardBatch

__all__ = ["PartialGroup"]


class PartialGroup:
    """One group on its way to the engine.

    Args:
        dispatcher: Started by the first group, in a thread.
        size: Responses of the group.
        columns: The columns of some responses.
        counted: Counts a result's failures; it gets the tokens of each response too.
        step: That of its first response.
    """

    def __init__(
        self,
        dispatcher: Dispatcher,
        size: int,
        columns: Callable[[list[Response]], dict[str, Any]],
        counted: Callable[[Awaitable[RewardBatch], list[int]], Awaitable[Scored]],
        step: StepAlone,
    ) -> None:
        self._columns = columns
        self._counted = counted
        self._tokens = [0] * size
        self._names: list[str] | None = None  # of the first response's columns
        self._waiting: list[tuple[int, Response]] = []  # until the stream is there
        self._error: GuerdonError | None = None
        self._stream: asyncio.Future[OpenBatch] = asyncio.ensure_future(
            asyncio.to_thread(dispatcher.stream, num_generations=size, trainer_state=step)
        )
        self._stream.add_done_callback(self._send)

    def add(self, number: int, sample: Response) -> None:
        """The response with this number in the group, which no other has."""
        self._tokens[number] = len(sample.completion_ids)
        self._waiting.append((number, sample))
        if self._stream.done():
            self._send(self._stream)

    async def result(self) -> Scored:
        """The whole group, once all its responses were added.

        Raises:
            DataError: A response can't be scored.
            RewardFailureError: Too many failed.
        """
        stream = await self._stream
        self._send(self._stream)
        if self._error is not None:
            raise self._error
        stream.finish()
        try:
            return await self._counted(stream.aresult(), self._tokens)
        except asyncio.CancelledError:
            stream.cancel()
            raise

    def cancel(self) -> None:
        """Gives the group up."""
        self._stream.add_done_callback(_cancel)

    def _send(self, opened: asyncio.Future[OpenBatch]) -> None:
        waiting, self._waiting = self._waiting, []
        if opened.cancelled() or opened.exception() is not None or self._error is not None:
            return  # `result` raises it
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

"""Puts the responses of one prompt together, which arrive one by one and in any order.

- G-1  A group is scored once, when its last response has come, and each of its responses gets its own place in the result.
- G-2  The order within a group is that of the places that the responses were given, never that of their arrival.
- G-3  A response too many is refused while its group is under way; a group that does not get complete is an error that says
       what to set, for each response that waits in it.
- G-4  Where verl numbers the responses, a group is scored while it fills (`early`): of at most `MOST_EARLY` groups at a time, since
       each has descriptors of its own; the others are scored when they are full.

All of it runs on one event loop: no locks.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Hashable
from dataclasses import dataclass, field
from typing import Final, Generic, Protocol, TypeVar

from guerdon.errors import DataError

__all__ = ["MOST_EARLY", "Filling", "Groups", "Place"]

S = TypeVar("S")
R = TypeVar("R")
S_in = TypeVar("S_in", contravariant=True)
R_out = TypeVar("R_out", covariant=True)

MOST_EARLY: Final = 128

Place = tuple[int, ...]
"""Where a response stands in its group: its number there alone, where that is known; else it is only compared with others."""


class Filling(Protocol[S_in, R_out]):
    """A group that is scored while it fills; see `guerdon.integrations.verl.partial_groups.Early`."""

    def add(self, number: int, sample: S_in, /) -> None: ...
    async def result(self) -> R_out: ...
    def cancel(self) -> None: ...


@dataclass
class _Open(Generic[S, R]):
    """A group that waits for responses."""

    size: int
    early: Filling[S, R] | None
    members: list[tuple[Place, S, asyncio.Future[tuple[R, int]]]] = field(default_factory=list)
    timer: asyncio.TimerHandle | None = None


class Groups(Generic[S, R]):
    """The open groups of one reward worker.

    Args:
        score: Scores a whole group, in order.
        patience: Seconds that a group may wait for its next response.
        begin: Begins a group of so many responses that is scored while it fills (G-4); None where that can't be.
    """

    def __init__(
        self,
        score: Callable[[list[S]], Awaitable[R]],
        patience: float,
        begin: Callable[[int], Filling[S, R]] | None = None,
    ) -> None:
        self._score = score
        self._patience = patience
        self._begin = begin
        self._early = 0  # groups that are scored while they fill
        self._open: dict[Hashable, _Open[S, R]] = {}
        self._scoring: set[Hashable] = set()
        self._tasks: set[asyncio.Task[None]] = set()  # a loop keeps only weak references

    async def add(self, key: Hashable, place: Place, sample: S, size: int) -> tuple[R, int]:
        """Waits until the group `key` of `size` responses is scored: its result, and the sample's index in it.

        Raises:
            DataError: G-3.
        """
        if key in self._scoring:
            raise DataError(
                f"more than {size} responses came for the prompt {key!r}. Is actor_rollout_ref.rollout.n the number of "
                "responses of every prompt? Does reward.num_workers divide the number of responses of a batch? (verl fills it "
                "up with copies if not.)"
            )
        group = self._open.get(key)
        if group is None:
            group = self._open[key] = _Open(size, self._begun(place, size))
        if group.early is not None:
            if not _numbered(place, size) or any(place == other for other, _, _ in group.members):
                raise DataError(
                    f"a response came as number {place[0]} of the {size} of the prompt {key!r}, which is no number of them or came before. "
                    "Is actor_rollout_ref.rollout.n the number of responses of every prompt? Does reward.num_workers divide the number "
                    "of responses of a batch? (verl fills it up with copies if not.)"
                )
            group.early.add(place[0], sample)
        loop = asyncio.get_running_loop()
        future: asyncio.Future[tuple[R, int]] = loop.create_future()
        group.members.append((place, sample, future))
        if group.timer is not None:
            group.timer.cancel()
            group.timer = None
        if len(group.members) < group.size:
            group.timer = loop.call_later(self._patience, self._give_up, key)
        else:
            del self._open[key]
            self._scoring.add(key)
            task = loop.create_task(self._run(key, group))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)
        return await future

    def _begun(self, place: Place, size: int) -> Filling[S, R] | None:
        if self._begin is None or self._early >= MOST_EARLY or not _numbered(place, size):
            return None
        self._early += 1
        return self._begin(size)

    async def _run(self, key: Hashable, group: _Open[S, R]) -> None:
        group.members.sort(key=lambda member: member[0])
        try:
            if group.early is None:
                result = await self._score([sample for _, sample, _ in group.members])
            else:
                result = await group.early.result()
        except BaseException as error:
            _fail(group, error)
            if not isinstance(error, Exception):
                raise
        else:
            for index, (_, _, future) in enumerate(group.members):
                if not future.done():
                    future.set_result((result, index))
        finally:
            self._scoring.discard(key)
            self._early -= group.early is not None

    def _give_up(self, key: Hashable) -> None:
        group = self._open.pop(key)
        if group.early is not None:
            self._early -= 1
            group.early.cancel()
        reason = (
            f"{len(group.members)} of {group.size} responses came for the prompt {key!r}, and no other one in "
            f"{self._patience:g} s. Is actor_rollout_ref.rollout.n the number of responses of every prompt? Rows of validation are "
            "told by extra_info['split'] (anything but 'train': rollout.val_kwargs.n). Does reward.num_workers divide the "
            "number of responses of a batch? Where generation takes that long: +reward.reward_kwargs.group_timeout=<seconds>. Ray lets a "
            "worker have 1000 responses in hand: with more per worker that wait for others, raise reward.num_workers."
        )
        _fail(group, DataError(reason))


def _numbered(place: Place, size: int) -> bool:
    return len(place) == 1 and 0 <= place[0] < size


def _fail(group: _Open[S, R], error: BaseException) -> None:
    waiting = [future for _, _, future in group.members if not future.done()]
    for future in waiting:
        future.set_exception(error if isinstance(error, Exception) else asyncio.CancelledError())

"""Puts the responses of one prompt together, which arrive one by one and in any order.

A group is scored once, its responses ordered by position, never by arrival. One response too many,
and a group that does not fill, are errors that say what to set. Where verl numbers the responses, a
group is scored while it fills, for at most `MAX_PARTIAL_GROUPS` groups at a time, since each has
file descriptors of its own. All of it runs on one event loop: no locks.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Hashable
from dataclasses import dataclass, field
from typing import Final, Generic, Protocol, TypeVar

from guerdon.errors import DataError

__all__ = ["MAX_PARTIAL_GROUPS", "FillingGroup", "Groups", "Position"]

S = TypeVar("S")
R = TypeVar("R")
S_in = TypeVar("S_in", contravariant=True)
R_out = TypeVar("R_out", covariant=True)

MAX_PARTIAL_GROUPS: Final = 128

_CHECK: Final = (
    "Check that actor_rollout_ref.rollout.n is the number of responses of every prompt, and that reward.num_workers divides "
    "the number of responses of a batch (verl fills it up with copies if not)."
)

Position = tuple[int, ...]
"""Of a response in its group: its number alone, where known; else only compared with others."""


class FillingGroup(Protocol[S_in, R_out]):
    """A group that is scored while it fills; see
    `guerdon.integrations.verl.partial_groups.PartialGroup`."""

    def add(self, number: int, sample: S_in, /) -> None: ...
    async def result(self) -> R_out: ...
    def cancel(self) -> None: ...


@dataclass
class _OpenGroup(Generic[S, R]):
    """A group that waits for responses."""

    size: int
    partial: FillingGroup[S, R] | None
    members: list[tuple[Position, S, asyncio.Future[tuple[R, int]]]] = field(default_factory=list)
    timer: asyncio.TimerHandle | None = None


class Groups(Generic[S, R]):
    """The open groups of one reward worker.

    Args:
        score: Scores a whole group, in order.
        timeout: Seconds that a group may wait for its next response.
        begin: Begins a group of that many responses that is scored while it fills; None where no
            group can be.
    """

    def __init__(
        self,
        score: Callable[[list[S]], Awaitable[R]],
        timeout: float,
        begin: Callable[[int], FillingGroup[S, R]] | None = None,
    ) -> None:
        self._score = score
        self._timeout = timeout
        self._begin = begin
        self._partial_groups = 0  # groups that are scored while they fill
        self._open: dict[Hashable, _OpenGroup[S, R]] = {}
        self._scoring: set[Hashable] = set()
        self._tasks: set[asyncio.Task[None]] = set()  # a loop keeps only weak references

    async def add(self, key: Hashable, position: Position, sample: S, size: int) -> tuple[R, int]:
        """Waits until the group `key` of `size` responses is scored: its result, and the sample's
        index in it.

        Raises:
            DataError: A response too many or twice, or the group did not fill in time.
        """
        if key in self._scoring:
            raise DataError(f"more than {size} responses came for the prompt {key!r}. {_CHECK}")
        group = self._open.get(key)
        if group is None:
            group = self._open[key] = _OpenGroup(size, self._begin_partial(position, size))
        if group.partial is not None:
            if not _numbered(position, size) or any(position == other for other, _, _ in group.members):
                raise DataError(
                    f"response number {position[0]} of the prompt {key!r} came twice, or is out of range: it has {size}. {_CHECK}"
                )
            group.partial.add(position[0], sample)
        loop = asyncio.get_running_loop()
        future: asyncio.Future[tuple[R, int]] = loop.create_future()
        group.members.append((position, sample, future))
        if group.timer is not None:
            group.timer.cancel()
            group.timer = None
        if len(group.members) < group.size:
            group.timer = loop.call_later(self._timeout, self._give_up, key)
        else:
            del self._open[key]
            self._scoring.add(key)
            task = loop.create_task(self._run(key, group))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)
        return await future

    def _begin_partial(self, position: Position, size: int) -> FillingGroup[S, R] | None:
        if self._begin is None or self._partial_groups >= MAX_PARTIAL_GROUPS or not _numbered(position, size):
            return None
        self._partial_groups += 1
        return self._begin(size)

    async def _run(self, key: Hashable, group: _OpenGroup[S, R]) -> None:
        group.members.sort(key=lambda member: member[0])
        try:
            if group.partial is None:
                result = await self._score([sample for _, sample, _ in group.members])
            else:
                result = await group.partial.result()
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
            self._partial_groups -= group.partial is not None

    def _give_up(self, key: Hashable) -> None:
        group = self._open.pop(key)
        if group.partial is not None:
            self._partial_groups -= 1
            group.partial.cancel()
        reason = (
            f"only {len(group.members)} of {group.size} responses came for the prompt {key!r}, and no other within "
            f"{self._timeout:g} s. {_CHECK} Rows of validation are told by extra_info['split'] (anything but 'train': "
            "rollout.val_kwargs.n). If generation takes that long, set +reward.reward_kwargs.group_timeout=<seconds>. Ray "
            "lets a worker hold 1000 calls: if more wait for others, raise reward.num_workers."
        )
        _fail(group, DataError(reason))


def _numbered(position: Position, size: int) -> bool:
    return len(position) == 1 and 0 <= position[0] < size


def _fail(group: _OpenGroup[S, R], error: BaseException) -> None:
    waiting = [future for _, _, future in group.members if not future.done()]
    for future in waiting:
        future.set_exception(error if isinstance(error, Exception) else asyncio.CancelledError())

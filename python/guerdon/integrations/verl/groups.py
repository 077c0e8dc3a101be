"""Puts the responses of one prompt together, which arrive one by one and in any order.

A group is scored once, when its last response is there, its responses ordered by position, never by
arrival; one that comes again, from the same origin, is the same response. One too many, and a group
that does not fill, are errors that say what to set. All of it runs on one event loop: no locks.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Hashable, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from guerdon.errors import DataError
from guerdon.integrations.verl.answered_groups import Answer
from guerdon.integrations.verl.origin import Origin
from guerdon.integrations.verl.reward_output import ScoredBatch
from guerdon.integrations.verl.sample import Response

_CHECK: Final = (
    "Check that actor_rollout_ref.rollout.n is the number of responses of every prompt, and that reward.num_workers divides "
    "the number of responses of a batch (verl fills it up with copies if not)."
)


@dataclass
class _OpenGroup:
    """A group that waits for responses, or is scored.

    Attributes:
        answers: To all of its responses at once.
        members: Its responses, by origin.
        timer: Runs while it waits for its next response.
    """

    size: int
    answers: asyncio.Future[dict[Origin, Answer]]
    members: dict[Origin, Response] = field(default_factory=dict)
    timer: asyncio.TimerHandle | None = None


class Groups:
    """The open groups of one reward worker.

    Args:
        score: Scores a whole group, in order.
        answers: What the responses of a group are answered with, in order, by its key, their
            origins and its result; an exception is raised to those who brought the response.
        timeout: Seconds that a group may wait for its next response.
    """

    def __init__(
        self,
        score: Callable[[list[Response]], Awaitable[ScoredBatch]],
        answers: Callable[[Hashable, list[Origin], ScoredBatch], Sequence[Answer]],
        timeout: float,
    ) -> None:
        self._score = score
        self._answers = answers
        self._timeout = timeout
        self._groups: dict[Hashable, _OpenGroup] = {}
        self._tasks: set[asyncio.Task[None]] = set()  # a loop keeps only weak references

    async def add(self, key: Hashable, origin: Origin, sample: Response, size: int) -> dict[str, Any]:
        """Waits until the group `key` of `size` responses is scored: the answer to this one.

        Raises:
            DataError: A response too many, or the group did not fill in time.
            RewardFailureError: That is the answer.
        """
        loop = asyncio.get_running_loop()
        group = self._groups.get(key)
        if group is None:
            group = self._groups[key] = _OpenGroup(size, loop.create_future())
        if len(group.members) < group.size:
            group.members[origin] = sample
            self._go_on(key, group)
        elif origin not in group.members:
            raise DataError(f"more than {size} responses came for the prompt {key!r}. {_CHECK}")
        answer = (await asyncio.shield(group.answers))[origin]  # others wait for them too
        if isinstance(answer, Exception):
            raise answer
        return answer

    def _go_on(self, key: Hashable, group: _OpenGroup) -> None:
        """Scores the group if it is full; else it waits for its next response from now on."""
        if group.timer is not None:
            group.timer.cancel()
        loop = asyncio.get_running_loop()
        if len(group.members) < group.size:
            group.timer = loop.call_later(self._timeout, self._give_up, key)
            return
        task = loop.create_task(self._run(key, group))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _run(self, key: Hashable, group: _OpenGroup) -> None:
        origins = sorted(group.members, key=lambda origin: origin.position)
        try:
            scored = await self._score([group.members[origin] for origin in origins])
            answers = self._answers(key, origins, scored)
            group.answers.set_result(dict(zip(origins, answers, strict=True)))
        except Exception as error:
            group.answers.set_exception(error)
        finally:
            del self._groups[key]
            group.answers.cancel()  # where this task was cancelled

    def _give_up(self, key: Hashable) -> None:
        group = self._groups.pop(key)
        reason = (
            f"only {len(group.members)} of {group.size} responses came for the prompt {key!r}, and no other within "
            f"{self._timeout:g} s. {_CHECK} Rows of validation are told by extra_info['split'] (anything but 'train': "
            "rollout.val_kwargs.n). If generation takes that long, set +reward.reward_kwargs.group_timeout=<seconds>. Ray "
            "lets a worker hold 1000 calls: if more wait for others, raise reward.num_workers."
        )
        group.answers.set_exception(DataError(reason))

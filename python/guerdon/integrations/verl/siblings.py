"""Responses of one prompt that are scored one by one, of which a failed one has the others' mean.

A response with a reward is answered at once. One without waits until the others of its prompt are
scored, or until none has come for a while: then those that came are its group. All of it runs on
one event loop: no locks.
"""

from __future__ import annotations

import asyncio
import functools
from collections.abc import Callable, Coroutine, Hashable
from dataclasses import dataclass, field
from typing import Any

from guerdon.integrations.verl.origin import Origin
from guerdon.integrations.verl.reward_output import Place, has_reward
from guerdon.integrations.verl.sample import Response


@dataclass(eq=False)
class _Prompt:
    """The responses of one prompt that came until now."""

    size: int
    scoring: dict[Origin, asyncio.Task[Place]] = field(default_factory=dict)
    given_up: bool = False
    complete: asyncio.Event = field(default_factory=asyncio.Event)
    timer: asyncio.TimerHandle | None = None

    def places(self) -> dict[Origin, Place]:
        """The scored ones, in an order that does not depend on their arrival."""
        scored = {origin: task.result() for origin, task in self.scoring.items() if _went_well(task)}
        return {origin: scored[origin] for origin in sorted(scored, key=lambda origin: origin.position)}


class Siblings:
    """The prompts of one reward worker.

    Args:
        score: Scores one response.
        complete: Gets the responses of a prompt, by origin, when all were scored.
        timeout: Seconds that a failed response waits for the next of its prompt.
    """

    def __init__(
        self,
        score: Callable[[Response], Coroutine[Any, Any, Place]],
        complete: Callable[[Hashable, dict[Origin, Place]], None],
        timeout: float,
    ) -> None:
        self._score = score
        self._complete = complete
        self._timeout = timeout
        self._open: dict[Hashable, _Prompt] = {}

    async def add(self, key: Hashable, origin: Origin, sample: Response, size: int) -> tuple[Place, list[Place]]:
        """Returns the place at which this response of the prompt `key` was scored, and the
        responses of its group that count for it: itself alone where it has a reward."""
        prompt = self._open.get(key)
        if prompt is None:
            prompt = self._open[key] = _Prompt(size)
        task = prompt.scoring.get(origin)
        if task is None:
            task = prompt.scoring[origin] = asyncio.get_running_loop().create_task(self._score(sample))
            task.add_done_callback(functools.partial(self._go_on, key, prompt))
            self._wait_for_next(key, prompt)
        place = await asyncio.shield(task)  # others may wait for it too
        if has_reward(*place):
            return place, [place]
        await prompt.complete.wait()
        return place, list(prompt.places().values())

    def _wait_for_next(self, key: Hashable, prompt: _Prompt) -> None:
        if prompt.timer is not None:
            prompt.timer.cancel()
        prompt.timer = asyncio.get_running_loop().call_later(self._timeout, self._give_up, key, prompt)

    def _give_up(self, key: Hashable, prompt: _Prompt) -> None:
        prompt.given_up = True
        self._go_on(key, prompt)

    def _go_on(self, key: Hashable, prompt: _Prompt, ended: asyncio.Task[Place] | None = None) -> None:
        """Ends the wait if all responses are there and scored."""
        if ended is not None and not ended.cancelled():
            ended.exception()  # who brought it gets it, if it still waits
        came = prompt.given_up or len(prompt.scoring) >= prompt.size
        if prompt.complete.is_set() or not came or not all(task.done() for task in prompt.scoring.values()):
            return
        if prompt.timer is not None:
            prompt.timer.cancel()
        del self._open[key]
        prompt.complete.set()
        self._complete(key, prompt.places())


def _went_well(task: asyncio.Task[Place]) -> bool:
    return task.done() and not task.cancelled() and task.exception() is None

"""Environments in the rollout loop: what they say of a completion, taken while the rollout still has its environment.

TRL awaits each environment's ``get_reward`` in the one coroutine that starts all generation. Here it is awaited in the
rollout's own task, side by side with all others, and comes to TRL as a reward column of its own.

- W-1  An environment is asked after its completion has ended and before it goes back to the pool.
- W-2  Rewards go with their completion, whatever the order in which rollouts end.
- W-3  Where a reward function asks for environments, each completion has a snapshot, taken before anything else is done
       with its environment.
- W-4  A ``get_reward`` that raises, or gives what is no finite number, fails its sample and nothing else.
"""

from __future__ import annotations

import asyncio
import functools
import inspect
import logging
import math
from collections.abc import Callable, Coroutine
from concurrent.futures import Executor
from dataclasses import dataclass
from typing import Any, Final

from guerdon.integrations.trl.tool_calls.environments import environments_of
from guerdon.integrations.trl.tool_calls.snapshots import asnapshot

_LOG: Final = logging.getLogger(__name__)


@dataclass(frozen=True)
class EnvironmentReward:
    """What an environment of the class `kind` said; `value` is None where that was no number."""

    kind: type
    value: float | None


class Pool(list[Any]):
    """Instances that wait for a rollout; tells who was drawn, and takes none back that an abandoned call still has."""

    def __init__(self, instances: list[Any], drawn: Callable[[object], None]) -> None:
        super().__init__(instances)
        self._drawn = drawn

    def pop(self, *place: Any) -> Any:
        environment = super().pop(*place)
        self._drawn(environment)
        return environment

    def append(self, environment: Any) -> None:
        hub = environments_of(environment)
        if hub is None or hub.busy_in(environment) is None:
            super().append(environment)


class Environments:
    """The environments of one rollout loop.

    Args:
        kinds: Classes with a ``get_reward``.
        wanted: Whether a reward function asks for environments.
        pool: Where sync methods run.
        count: Told of each failure, by the name of a counter.
    """

    def __init__(self, kinds: list[type], wanted: bool, pool: Executor, count: Callable[[str], None]) -> None:
        self.kinds = tuple(kinds)
        self.wanted = wanted
        self._pool = pool
        self._count = count
        self._drawn: object = (
            None  # by the generating coroutine, which draws, resets and starts one rollout after another
        )
        # By the identity of the completion, which is held.
        self._rewards: dict[int, tuple[object, EnvironmentReward]] = {}
        self._snapshots: dict[int, tuple[object, object]] = {}  # likewise

    def watch(self, factories: dict[Any, Callable[[], object]], pools: dict[Any, list[Any]]) -> None:
        """Sees from now on which environment a rollout gets: one of a pool, or a new one."""
        for name, factory in factories.items():
            factories[name] = functools.partial(self._make, factory)
        for name, instances in pools.items():
            pools[name] = Pool(instances, self._draw)

    def rollout(self, generating: Coroutine[Any, Any, Any]) -> Coroutine[Any, Any, Any]:
        """`generating` for the environment drawn last, with the reward of it at the end (W-1)."""
        return self._ended(self._drawn, generating)

    def rewards_of(self, completions: list[Any]) -> list[EnvironmentReward | None]:
        """What the environments of these completions said; once (W-2)."""
        found = (self._rewards.pop(id(completion), None) for completion in completions)
        return [None if entry is None else entry[1] for entry in found]

    def snapshots_of(self, completions: list[Any]) -> list[object]:
        """The environments as these completions left them; once (W-2, W-3)."""
        return [self._snapshots.pop(id(completion))[1] for completion in completions]

    def forget(self, completions: list[Any]) -> None:
        """Lets go of what is kept for completions that are not scored."""
        self.rewards_of(completions)
        if self.wanted:
            self.snapshots_of(completions)

    def _make(self, factory: Callable[[], object]) -> object:
        environment = factory()
        self._draw(environment)
        return environment

    def _draw(self, environment: object) -> None:
        self._drawn = environment

    async def _ended(self, environment: object, generating: Coroutine[Any, Any, Any]) -> Any:
        result = await generating
        completion = result[0]
        if self.wanted:
            self._snapshots[id(completion)] = completion, await asnapshot(environment)
        if type(environment) in self.kinds:
            self._rewards[id(completion)] = completion, await self._reward(environment)
        return result

    async def _reward(self, environment: Any) -> EnvironmentReward:
        kind = type(environment)
        try:
            if inspect.iscoroutinefunction(environment.get_reward):
                value = await environment.get_reward()
            else:
                value = await asyncio.get_running_loop().run_in_executor(self._pool, environment.get_reward)
            number = float(value)
            if not math.isfinite(number):
                raise ValueError(f"get_reward gave {value!r}")
        except Exception as error:  # W-4
            self._count(f"guerdon/{kind.__name__}/error_total")
            _LOG.warning("the reward of an environment %s: %s: %s", kind.__name__, type(error).__name__, error)
            return EnvironmentReward(kind, None)
        return EnvironmentReward(kind, number)

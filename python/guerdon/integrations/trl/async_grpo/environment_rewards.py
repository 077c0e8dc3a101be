"""Rewards and snapshots of environments in the rollout loop, taken before an environment is reused.

TRL awaits each ``get_reward`` in the one coroutine that starts all generation. Here it is awaited
in the rollout's own task, after its completion has ended and before its environment goes back to
the pool, and comes to TRL as a reward column of its own. A ``get_reward`` that raises, or gives no
finite number, fails its sample only.
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

from guerdon.integrations.trl.tool_calls.environments import owner_of
from guerdon.integrations.trl.tool_calls.snapshots import take_snapshot

_LOG: Final = logging.getLogger(__name__)


@dataclass(frozen=True)
class EnvironmentReward:
    """The reward by an environment of the class `kind`; `value` is None if it failed."""

    kind: type
    value: float | None


class EnvironmentPool(list[Any]):
    """Instances that wait for a rollout; reports the one drawn, takes none back that is stuck."""

    def __init__(self, instances: list[Any], drawn: Callable[[object], None]) -> None:
        super().__init__(instances)
        self._drawn = drawn

    def pop(self, *place: Any) -> Any:
        environment = super().pop(*place)
        self._drawn(environment)
        return environment

    def append(self, environment: Any) -> None:
        owner = owner_of(environment)
        if owner is None or owner.stuck_in(environment) is None:
            super().append(environment)


class RolloutEnvironments:
    """The environments of one rollout loop.

    Args:
        kinds: Classes with a ``get_reward``.
        wanted: Whether a reward function names environments.
        pool: Where sync methods run.
        count: Adds one to the counter of a name.
    """

    def __init__(self, kinds: list[type], wanted: bool, pool: Executor, count: Callable[[str], None]) -> None:
        self.kinds = tuple(kinds)
        self.wanted = wanted
        self._pool = pool
        self._count = count
        # Written by the generating coroutine, which draws, resets and starts one rollout at a time.
        self._drawn: object = None
        # By the identity of the completion, which is kept alive.
        self._rewards: dict[int, tuple[object, EnvironmentReward]] = {}
        self._snapshots: dict[int, tuple[object, object]] = {}  # likewise

    def track(self, factories: dict[Any, Callable[[], object]], pools: dict[Any, list[Any]]) -> None:
        """Notes from now on which environment a rollout gets: one of a pool, or a new one."""
        for name, factory in factories.items():
            factories[name] = functools.partial(self._make, factory)
        for name, instances in pools.items():
            pools[name] = EnvironmentPool(instances, self._draw)

    def rollout(self, generating: Coroutine[Any, Any, Any]) -> Coroutine[Any, Any, Any]:
        """`generating` for the environment drawn last, with its snapshot and reward at the end."""
        return self._ended(self._drawn, generating)

    def rewards_of(self, completions: list[Any]) -> list[EnvironmentReward | None]:
        """The rewards by the environments of these completions; once each."""
        found = (self._rewards.pop(id(completion), None) for completion in completions)
        return [None if entry is None else entry[1] for entry in found]

    def snapshots_of(self, completions: list[Any]) -> list[object]:
        """The environments as these completions left them; once each."""
        return [self._snapshots.pop(id(completion))[1] for completion in completions]

    def forget(self, completions: list[Any]) -> None:
        """Drops what is kept for completions that are not scored."""
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
            self._snapshots[id(completion)] = completion, await take_snapshot(environment)
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
        except Exception as error:
            self._count(f"guerdon/{kind.__name__}/error_total")
            _LOG.warning(
                "get_reward of the environment %s failed, so its sample has no reward: %s: %s",
                kind.__name__,
                type(error).__name__,
                error,
            )
            return EnvironmentReward(kind, None)
        return EnvironmentReward(kind, number)

"""Environments in the rollout loop: their rewards, and when they are used again.

TRL awaits each ``get_reward`` in the one coroutine that starts all generation. Here it is awaited
in the rollout's own task, after its completion has ended and before its environment goes back to
the pool, and comes to TRL as a separate reward column. A ``get_reward`` that raises, or gives no
finite number, fails its sample only. If a reward function names environments, an environment goes
back only when its group is scored.
"""

from __future__ import annotations

import functools
import logging
import math
from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from typing import Any, Final

from guerdon._worker.invoke.reasons import reason_of
from guerdon.integrations.trl.tool_calls.environments import REWARD, owner_of, usable
from guerdon.integrations.trl.tool_calls.proxies import launcher_of

_LOG: Final = logging.getLogger(__name__)


@dataclass(frozen=True)
class EnvironmentReward:
    """The reward by an environment of the class `kind`; `value` is None if it failed."""

    kind: type
    value: float | None


@dataclass
class _Rollout:
    """State of a completion until its group is scored.

    Attributes:
        pool: Where its environment goes then; None until TRL gives it back.
    """

    completion: object
    environment: Any
    reward: EnvironmentReward | None = None
    pool: EnvironmentPool | None = None


class EnvironmentPool(list[Any]):
    """Instances that wait for a rollout.

    Args:
        drawn: Called with the one that a rollout gets.
        keeps: Whether one that comes back is kept from other rollouts for a while.
    """

    def __init__(
        self,
        instances: list[Any],
        drawn: Callable[[object], None],
        keeps: Callable[[object, EnvironmentPool], bool],
    ) -> None:
        super().__init__(instances)
        self._drawn = drawn
        self._keeps = keeps

    def pop(self, *place: Any) -> Any:
        environment = super().pop(*place)
        self._drawn(environment)
        return environment

    def append(self, environment: Any) -> None:
        if not self._keeps(environment, self):
            self.take_back(environment)

    def take_back(self, environment: Any) -> None:
        """Takes an instance, unless an earlier call still has it."""
        owner = owner_of(environment)
        if owner is None or not owner.busy(environment):
            super().append(environment)


class RolloutEnvironments:
    """The environments of one rollout loop.

    Args:
        kinds: Classes with a ``get_reward``.
        wanted: Whether a reward function names environments.
        count: Adds one to the counter of a name.
    """

    def __init__(self, kinds: list[type], wanted: bool, count: Callable[[str], None]) -> None:
        self.kinds = tuple(kinds)
        self.wanted = wanted
        self._count = count
        # Written by the generating coroutine, which draws, resets and starts one rollout at a time.
        self._drawn: object = None
        self._ended: dict[int, _Rollout] = {}  # by the identity of the completion
        self._unscored: dict[int, _Rollout] = {}  # by the identity of the environment

    def track(self, factories: dict[Any, Callable[[], object]], pools: dict[Any, list[Any]]) -> None:
        """Notes from now on which environment a rollout gets: one of a pool, or a new one."""
        for name, factory in factories.items():
            factories[name] = functools.partial(self._make, factory)
        for name, instances in pools.items():
            pools[name] = EnvironmentPool(instances, self._draw, self._keep)

    def rollout(self, generating: Coroutine[Any, Any, Any]) -> Coroutine[Any, Any, Any]:
        """`generating` for the environment drawn last, with its reward at the end."""
        return self._rewarded(self._drawn, generating)

    def of(self, completions: list[Any]) -> list[object]:
        """The environments of these completions, as those left them."""
        return [usable(self._ended[id(completion)].environment) for completion in completions]

    def take_rewards(self, completions: list[Any]) -> list[EnvironmentReward | None]:
        """The rewards by the environments of these completions, which are then free; once each."""
        rollouts = [self._ended.pop(id(completion)) for completion in completions]
        for one in rollouts:
            self._unscored.pop(id(one.environment), None)
            if one.pool is not None:
                one.pool.take_back(one.environment)
        return [one.reward for one in rollouts]

    def _make(self, factory: Callable[[], object]) -> object:
        environment = factory()
        self._draw(environment)
        return environment

    def _draw(self, environment: object) -> None:
        self._drawn = environment

    def _keep(self, environment: object, pool: EnvironmentPool) -> bool:
        rollout = self._unscored.get(id(environment))
        if rollout is not None:
            rollout.pool = pool
        return rollout is not None

    async def _rewarded(self, environment: object, generating: Coroutine[Any, Any, Any]) -> Any:
        result = await generating
        rollout = self._ended[id(result[0])] = _Rollout(result[0], environment)
        if self.wanted:
            self._unscored[id(environment)] = rollout
        if type(environment) in self.kinds:
            rollout.reward = await self._reward(environment)
        return result

    async def _reward(self, environment: Any) -> EnvironmentReward:
        kind = type(environment)
        try:
            launch = launcher_of(getattr(environment, REWARD))
            assert launch is not None  # our factories make all of them
            number = float(await launch((), {}).aresult())
            if not math.isfinite(number):
                raise ValueError(f"get_reward gave {number!r}")
        except Exception as error:
            self._count(f"guerdon/{kind.__name__}/error_total")
            # As text: a log may keep its records, and an exception all that it was raised in.
            _LOG.warning(
                "get_reward of the environment %s failed, so its sample has no reward: %s",
                kind.__name__,
                reason_of(error),
            )
            return EnvironmentReward(kind, None)
        return EnvironmentReward(kind, number)

"""A mixin before TRL's rollout loop: resets and rewards of environments in the sample's own task.

TRL awaits each reset and each ``get_reward`` in the one coroutine that starts all generation. Here
both run in the task of their sample, a reset unless an order was asked for. A ``get_reward`` that
raises, or gives no finite number, fails its sample only. If a reward function names environments,
an environment goes back to its pool only when its group is scored.
"""

from __future__ import annotations

import functools
import logging
import math
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from guerdon._worker.invoke.reasons import reason_of
from guerdon.integrations.trl.async_grpo.group_scores import GroupScores
from guerdon.integrations.trl.tool_calls.environments import REWARD, environments, owner_of
from guerdon.integrations.trl.tool_calls.proxies import launcher_of
from guerdon.integrations.trl.tool_calls.tools import Tool

_LOG: Final = logging.getLogger(__name__)


@dataclass
class _Rollout:
    """A rollout until its group is scored.

    Attributes:
        row: The arguments of a reset that has not run yet.
        completion: Kept, so that its identity stays its own; None until it has ended.
        reward: By the environment itself; None if there is none.
        failed: Whether its ``get_reward`` failed.
        pool: Where the environment goes then; None until TRL gives it back.
    """

    environment: Any
    row: Mapping[str, Any] | None
    completion: object = None
    reward: float | None = None
    failed: bool = False
    pool: EnvironmentPool | None = None


class EnvironmentPool(list[Any]):
    """Instances that wait for a rollout.

    Args:
        keeps: Whether one that comes back is kept from other rollouts for a while.
    """

    def __init__(self, instances: list[Any], keeps: Callable[[object, EnvironmentPool], bool]) -> None:
        super().__init__(instances)
        self._keeps = keeps

    def append(self, environment: Any) -> None:
        if not self._keeps(environment, self):
            self.take_back(environment)

    def take_back(self, environment: Any) -> None:
        """Takes an instance, unless an earlier call still has it."""
        owner = owner_of(environment)
        if owner is None or not owner.busy(environment):
            super().append(environment)


class EnvironmentRollouts:
    """The mixin. A plain ``environment_factory`` gets `environments` with default timeouts.

    Attributes:
        environment_kinds: Classes with a ``get_reward``.
        keeps_environments: Whether a reward function names environments.
    """

    # TRL's own.
    environment_factories: Any
    tools: Any
    _counters: Any
    _env_reward_types: list[type]
    _environment_pool: Any
    _rates: Any

    keeps_environments = False

    def __init__(self, **named: Any) -> None:
        factory = named.get("environment_factory")
        if factory is not None:
            named["environment_factory"] = environments(factory)
        super().__init__(**named)
        self.environment_kinds = self._env_reward_types
        self._env_reward_types = []  # asked here: to TRL they are reward functions
        # The rollout of the last reset: TRL draws, resets and starts one rollout at a time.
        self._drawn: _Rollout | None = None
        self._ended: dict[int, _Rollout] = {}  # by the identity of the completion
        self._kept: dict[int, _Rollout] = {}  # by the identity of the environment
        pools = self._environment_pool if self.environment_factories is not None else {}
        self._owners = [owner for instances in pools.values() if (owner := owner_of(instances[0])) is not None]
        for owner in self._owners:
            owner.reset_source = self
        for name, instances in pools.items():
            pools[name] = EnvironmentPool(instances, self._keep)

    def close_tools_and_environments(self) -> None:
        """Ends what tools and environments run on; calls in flight are cancelled."""
        for owner in self._owners:
            owner.close()
        for tool in self.tools or ():
            proxied = getattr(tool, "__self__", None)
            if isinstance(proxied, Tool):
                proxied.owner.close()

    def reset(self, environment: object, kwargs: Mapping[str, Any]) -> Any:
        """Notes which environment the next rollout has. TRL gets a placeholder where the reset runs
        in the sample's task."""
        owner = owner_of(environment)
        assert owner is not None  # others have no `reset_source`
        self._drawn = _Rollout(environment, None if owner.ordered else kwargs)
        return owner.reset(environment, kwargs) if owner.ordered else _PendingReset()

    def environments_of(self, completions: list[Any]) -> list[object]:
        """The environments of these completions, as those left them."""
        return [self._ended[id(completion)].environment for completion in completions]

    def add_environment_rewards(self, completions: list[Any], scored: GroupScores) -> None:
        """Adds a column for each class of environments, which are free then. A sample whose own
        reward failed has none in any column."""
        rollouts = self.free_environments(completions)
        for index, one in enumerate(rollouts):
            if one.failed:
                scored.fail(index)
        for kind in self.environment_kinds:
            column = [
                one.reward if type(one.environment) is kind and not out else None
                for one, out in zip(rollouts, scored.failed, strict=True)
            ]
            scored.raw.append(column)
            scored.weighted.append(column)

    def free_environments(self, completions: list[Any]) -> list[_Rollout]:
        """Returns the rollouts of these completions, whose environments may be used again."""
        if self.environment_factories is None:
            return []
        rollouts = [self._ended.pop(id(completion)) for completion in completions]
        for one in rollouts:
            self._kept.pop(id(one.environment), None)
            if one.pool is not None:
                one.pool.take_back(one.environment)
        return rollouts

    def _generate_one(self, prompt: Any, *args: Any, **named: Any) -> Any:
        drawn, self._drawn = self._drawn, None
        generate = functools.partial(super()._generate_one, prompt, *args, **named)  # type: ignore[misc]
        return generate() if drawn is None else self._play(drawn, prompt, generate)

    async def _play(self, rollout: _Rollout, prompt: Any, generate: Callable[[], Any]) -> Any:
        """Resets the environment, generates the completion and asks for its reward."""
        environment = rollout.environment
        if rollout.row is not None:
            began = time.monotonic()
            owner = owner_of(environment)
            assert owner is not None
            _append_observation(prompt, await owner.reset(environment, rollout.row).aresult())
            self._rates["guerdon/env/reset_s"][0] += time.monotonic() - began
            self._rates["guerdon/env/reset_s"][1] += 1
        result = await generate()
        rollout.completion = result[0]
        self._ended[id(result[0])] = rollout
        if self.keeps_environments:
            self._kept[id(environment)] = rollout
        if type(environment) in self.environment_kinds:
            await self._take_reward(rollout)
        return result

    async def _take_reward(self, rollout: _Rollout) -> None:
        name = type(rollout.environment).__name__
        try:
            launch = launcher_of(getattr(rollout.environment, REWARD))
            assert launch is not None  # our factories make all of them
            number = float(await launch((), {}).aresult())
            if not math.isfinite(number):
                raise ValueError(f"get_reward gave {number!r}")
            rollout.reward = number
        except Exception as error:
            rollout.failed = True
            self._counters[f"guerdon/{name}/error_total"] += 1
            # A log may keep its records, and an exception keeps all that it was raised in.
            _LOG.warning(
                "get_reward of the environment %s failed, so its sample has no reward: %s", name, reason_of(error)
            )

    def _keep(self, environment: object, pool: EnvironmentPool) -> bool:
        rollout = self._kept.get(id(environment))
        if rollout is not None:
            rollout.pool = pool
        return rollout is not None


class _PendingReset:
    """A reset that has not run yet."""

    def result(self) -> str:
        return ""


def _append_observation(prompt: list[dict[str, Any]], observation: Any) -> None:
    """Appends what a reset gave to the last message, as TRL does; the message is TRL's copy."""
    last = prompt[-1]
    content = last["content"]
    if isinstance(content, list) and content[-1:] == [{"type": "text", "text": ""}]:
        content = content[:-1]
    if isinstance(observation, list) and isinstance(content, str):
        content = [{"type": "text", "text": content}]
    elif isinstance(observation, str) and isinstance(content, list):
        observation = [{"type": "text", "text": observation}]
    last["content"] = content if observation is None else content + observation

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
from concurrent.futures import Future
from dataclasses import dataclass
from typing import Any, Final

from guerdon._worker.invoke.reasons import reason_of
from guerdon.integrations.trl.async_grpo.group_scores import GroupScores
from guerdon.integrations.trl.patching import Mixin
from guerdon.integrations.trl.tool_calls.environments import REWARD, Environments, environments, is_busy, owner_of
from guerdon.integrations.trl.tool_calls.tools import Tool

_LOG: Final = logging.getLogger(__name__)


# Given to TRL for a reset that has not run yet.
_NO_OBSERVATION: Final[Future[str]] = Future()
_NO_OBSERVATION.set_result("")


@dataclass
class _Rollout:
    """A rollout until its group is scored.

    Attributes:
        owner: The factory that made the environment.
        row: The arguments of a reset that has not run yet.
        completion: Kept, so that its identity stays its own; None until it has ended.
        reward: By the environment itself; NaN if there is none.
        failed: Whether its ``get_reward`` failed.
        pool: Where the environment goes then; None until TRL gives it back.
    """

    environment: Any
    owner: Environments
    row: Mapping[str, Any] | None
    completion: object = None
    reward: float = math.nan
    failed: bool = False
    pool: EnvironmentPool | None = None


class EnvironmentPool(list[Any]):
    """Instances that wait for a rollout. Rollouts in `kept`, by the identity of the environment,
    keep theirs for a while."""

    def __init__(self, instances: list[Any], kept: Mapping[int, _Rollout]) -> None:
        super().__init__(instances)
        self._kept = kept

    def append(self, environment: Any) -> None:
        rollout = self._kept.get(id(environment))
        if rollout is None:
            self.take_back(environment)
        else:
            rollout.pool = self

    def take_back(self, environment: Any) -> None:
        """Takes an instance, unless an earlier call still has it."""
        if not is_busy(environment):
            super().append(environment)


class EnvironmentRollouts(Mixin):  # type: ignore[misc]  # trl is not typed
    """The mixin. A plain ``environment_factory`` gets `environments` with default timeouts.

    Attributes:
        environment_kinds: Classes with a ``get_reward``.
        keeps_environments: Whether a reward function names environments.
    """

    keeps_environments = False
    _env_reward_types: list[type]  # TRL's

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
            owner.reset_source = self.reset
        for name, instances in pools.items():
            pools[name] = EnvironmentPool(instances, self._kept)

    def close_tools_and_environments(self) -> None:
        """Ends what tools and environments run on; calls in flight are cancelled."""
        for owner in self._owners:
            owner.close()
        for tool in self.tools or ():
            proxied = getattr(tool, "__self__", None)
            if isinstance(proxied, Tool):
                proxied.owner.close()

    def reset(self, owner: Environments, environment: object, kwargs: Mapping[str, Any]) -> Any:
        """Notes which environment the next rollout has. TRL gets a placeholder where the reset runs
        in the sample's task."""
        self._drawn = _Rollout(environment, owner, None if owner.ordered else kwargs)
        return owner.reset(environment, kwargs) if owner.ordered else _NO_OBSERVATION

    def add_environment_rewards(self, completions: list[Any], scored: GroupScores) -> None:
        """Adds a column for each class of environments, which are free then. A sample whose own
        reward failed has none in any column."""
        rollouts = self.free_environments(completions)
        for index, one in enumerate(rollouts):
            if one.failed:
                scored.fail(index)
        for kind in self.environment_kinds:
            scored.add([one.reward if type(one.environment) is kind else math.nan for one in rollouts])

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
        generate = functools.partial(super()._generate_one, prompt, *args, **named)
        return generate() if drawn is None else self._play(drawn, prompt, generate)

    async def _play(self, rollout: _Rollout, prompt: Any, generate: Callable[[], Any]) -> Any:
        """Resets the environment, generates the completion and asks for its reward."""
        environment = rollout.environment
        if rollout.row is not None:
            began = time.monotonic()
            _append_observation(prompt, await rollout.owner.reset(environment, rollout.row).aresult())
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
            number = float(await rollout.owner.start(rollout.environment, REWARD, (), {}).aresult())
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

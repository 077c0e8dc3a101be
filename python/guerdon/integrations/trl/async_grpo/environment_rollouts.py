"""A mixin before TRL's rollout loop: the resets of environments in the task of their own sample.

TRL awaits each reset in the one coroutine that starts all generation. Here a reset runs in the task
of its sample, unless an order was asked for. An environment that has a reward of its own, or is
named by a reward function, goes back to its pool when its group is scored.
"""

from __future__ import annotations

import functools
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from guerdon._batch.trainer.column import RewardColumn
from guerdon.integrations.trl.tool_calls.environment_reward_columns import reward_dispatcher
from guerdon.integrations.trl.tool_calls.environments import environments, owner_of
from guerdon.integrations.trl.tool_calls.tools import Tool

__all__ = ["EnvironmentRollouts"]


@dataclass(frozen=True)
class _Rollout:
    """The next rollout.

    Attributes:
        row: The arguments of a reset that has not run yet.
    """

    environment: Any
    row: Mapping[str, Any] | None


class EnvironmentPool(list[Any]):
    """Instances that wait for a rollout.

    Args:
        keeps: Whether one that comes back is kept from other rollouts until its group is scored.
    """

    def __init__(self, instances: list[Any], *, keeps: bool) -> None:
        super().__init__(instances)
        self._keeps = keeps
        self._kept: dict[int, Any] = {}  # by identity

    def append(self, environment: Any) -> None:
        if self._keeps:
            self._kept[id(environment)] = environment
        else:
            self._take(environment)

    def free(self, environment: object) -> None:
        """Takes an instance whose group is scored, if it is of this pool."""
        kept = self._kept.pop(id(environment), None)
        if kept is not None:
            self._take(kept)

    def _take(self, environment: Any) -> None:
        owner = owner_of(environment)
        if owner is None or not owner.busy(environment):  # else an earlier call still has it
            super().append(environment)


class EnvironmentRollouts:
    """The mixin. A plain ``environment_factory`` gets `environments` with default timeouts.

    Attributes:
        environment_columns: Their own rewards.
        names_environments: Whether a reward function names environments; set before ``__init__``.
    """

    # TRL's own.
    environment_factories: Any
    tools: Any
    _env_reward_types: list[type]
    _environment_pool: Any
    _rates: Any

    names_environments = False

    def __init__(self, **named: Any) -> None:
        factory = named.get("environment_factory")
        if factory is not None:
            named["environment_factory"] = environments(factory)
        super().__init__(**named)
        self._owners = list((self.environment_factories or {}).values())
        dispatcher = reward_dispatcher(self._env_reward_types, self._owners)
        self.environment_columns: tuple[RewardColumn, ...] = (
            () if dispatcher is None else tuple(dispatcher.reward_funcs)
        )
        self._env_reward_types = []  # scored here: to TRL they are reward functions
        # The rollout of the last reset: TRL draws, resets and starts one rollout at a time.
        self._drawn: _Rollout | None = None
        self.keeps_environments = bool(self._owners) and (self.names_environments or dispatcher is not None)
        # The environments that are kept, by the identity of the completion.
        self._ended: dict[int, Any] = {}
        for owner in self._owners:
            owner.reset_source = self
        if self._owners:
            pools = self._environment_pool.items()
            self._environment_pool = {
                name: EnvironmentPool(instances, keeps=self.keeps_environments) for name, instances in pools
            }

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
        return [self._ended[id(completion)] for completion in completions]

    def free_environments(self, completions: list[Any]) -> None:
        """Gives the environments of these completions back to their pools."""
        for completion in completions if self.keeps_environments else ():
            environment = self._ended.pop(id(completion))
            for pool in self._environment_pool.values():
                pool.free(environment)

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
        if self.keeps_environments:
            self._ended[id(result[0])] = environment
        return result


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

"""A mixin before a synchronous trainer: tools and environments of all samples run concurrently.

Tool calls of a turn start together for all samples, and so do the resets of a batch. A batch gets
no environment of another whose rewards are missing: a reward function sees what its completions
left, however late it runs. The mixin overrides methods and attributes of its instance only.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from guerdon.integrations.trl.patching import patched, replace_argument
from guerdon.integrations.trl.tool_calls.environment_reward_columns import use_reward_columns
from guerdon.integrations.trl.tool_calls.environments import Environments, environments, owner_of
from guerdon.integrations.trl.tool_calls.executor import CallCount, CallCounter, PendingCall
from guerdon.integrations.trl.tool_calls.tools import Tool
from guerdon.integrations.trl.tool_calls.turns import ToolTurns


class ConcurrentToolCalls:
    """The mixin. A plain ``environment_factory`` gets `environments` with default timeouts."""

    # The trainer's own.
    environment_factories: Any
    environments: Any = None
    reward_funcs: Any
    tools: Any
    model: Any
    _environment_pool: Any
    _sync_tool_dicts: Any
    _async_tool_dicts: Any
    _metrics: Any

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        args, kwargs = replace_argument(
            type(self),
            "environment_factory",
            args,
            kwargs,
            lambda given: None if given is None else environments(given),
        )
        super().__init__(*args, **kwargs)
        self._environment_rewards = use_reward_columns(self.reward_funcs, self._environment_owners())

    def _generate_and_score_completions(self, inputs: Any) -> Any:
        score: Callable[[Any], Any] = super()._generate_and_score_completions  # type: ignore[misc]
        if self.environment_factories is None:
            return score(inputs)
        pool = self._environment_pool
        free = self._free_environments()
        ahead = _BatchResets(self, inputs)
        owners = self._environment_owners()
        for owner in owners:
            owner.reset_source = None if owner.ordered else ahead
        try:
            with patched(self, {"_environment_pool": free}):
                return score(inputs)
        finally:
            for owner in owners:
                owner.reset_source = None
            ahead.end()
            for name, instances in free.items():
                known = {id(one) for one in pool[name]}
                pool[name].extend(one for one in instances if id(one) not in known)

    def _environment_owners(self) -> list[Environments]:
        return [owner for owner in (self.environment_factories or {}).values() if isinstance(owner, Environments)]

    def _environments_in_use(self) -> list[Any]:
        """Those of batches whose rewards are missing."""
        return []

    def _free_environments(self) -> dict[Any, list[Any]]:
        """Returns the pool without the environments in use; what an earlier call still has is
        replaced."""
        used = {id(one) for one in self._environments_in_use()}
        free: dict[Any, list[Any]] = {}
        for name, instances in self._environment_pool.items():
            for index, one in enumerate(instances):
                owner = owner_of(one)
                if owner is not None and id(one) not in used and owner.busy(one):
                    instances[index] = self.environment_factories[name]()
            free[name] = [one for one in instances if id(one) not in used]
        return free

    def _tool_call_loop(self, prompts: Any, prompt_ids: Any, completion_ids: Any, completions: Any, *rest: Any) -> Any:
        sync, late = self._sync_tool_dicts, self._async_tool_dicts
        turns = ToolTurns(completions, [{**second, **first} for first, second in zip(sync, late, strict=True)])
        proxied = [tool.__self__.owner for tool in self.tools if isinstance(getattr(tool, "__self__", None), Tool)]
        counters = list({id(owner): owner.counter for owner in (*proxied, *self._environment_owners())}.values())
        before = _counts(counters)
        # A trainer looks for a name among the sync tools first.
        waiting = [{**tools, **ours} for tools, ours in zip(sync, turns.stand_ins(), strict=True)]
        try:
            with patched(self, {"_sync_tool_dicts": waiting}):
                looped: Any = super()._tool_call_loop(  # type: ignore[misc]
                    prompts, prompt_ids, completion_ids, completions, *rest
                )
        finally:
            turns.end()
        metrics = self._metrics["train" if self.model.training else "eval"]
        for name, value in tool_metrics(before, _counts(counters)).items():
            metrics[name].append(value)
        return looped


class _BatchResets:
    """The resets of one batch without an order: the first that is asked for starts all."""

    def __init__(self, trainer: Any, inputs: Sequence[Mapping[str, Any]]) -> None:
        self._trainer = trainer
        self._inputs = inputs
        self._started: dict[int, tuple[Mapping[str, Any], PendingCall]] | None = None

    def reset(self, environment: object, kwargs: Mapping[str, Any]) -> PendingCall:
        """The reset of `environment`: the one started ahead, if its arguments are as expected."""
        if self._started is None:
            self._started = {}
            for one, row in zip(self._trainer.environments, self._inputs, strict=True):
                owner = owner_of(one)
                if owner is not None and not owner.ordered:
                    given = {k: v for k, v in row.items() if not self._trainer._multi_environment or k != "environment"}
                    self._started[id(one)] = given, owner.reset(one, given)
        expected, pending = self._started.pop(id(environment), ({}, None))
        if pending is not None:
            if expected.keys() == kwargs.keys() and all(expected[key] is kwargs[key] for key in kwargs):
                return pending
            pending.cancel()
        owner = owner_of(environment)
        assert owner is not None  # others have no `reset_source`
        return owner.reset(environment, kwargs)

    def end(self) -> None:
        """Cancels what nobody asked for, because of an earlier exception."""
        for _, pending in (self._started or {}).values():
            pending.cancel()


def tool_metrics(before: Mapping[str, CallCount], after: Mapping[str, CallCount]) -> dict[str, float]:
    """Returns the counts that a batch added, as metrics."""
    metrics = {}
    for name, count in after.items():
        added = CallCount(*map(operator.sub, count, before.get(name, CallCount())))
        if added.calls:
            metrics[f"guerdon/tools/{name}/failed_frac"] = added.failed / added.calls
            metrics[f"guerdon/tools/{name}/timeout_frac"] = added.timeouts / added.calls
            metrics[f"guerdon/tools/{name}/run_mean_s"] = added.run_s / added.calls
    return metrics


def _counts(counters: Iterable[CallCounter]) -> dict[str, CallCount]:
    """The counts by name: factories of one class count the same methods."""
    counts: dict[str, CallCount] = {}
    for counter in counters:
        for name, count in counter.counts().items():
            counts[name] = CallCount(*map(operator.add, counts.get(name, CallCount()), count))
    return counts

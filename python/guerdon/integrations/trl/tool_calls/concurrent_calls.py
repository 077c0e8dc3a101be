"""A mixin before a synchronous trainer: tools and environments of all samples run concurrently.

Tool calls of a turn start together for all samples, and so do the resets of a batch. A batch gets
no environment of another whose rewards are missing: a reward function sees what its completions
left, however late it runs. The mixin overrides methods and attributes of its instance only.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from guerdon.integrations.trl.patching import Mixin, patched, replace_argument
from guerdon.integrations.trl.tool_calls.environment_reward_columns import use_reward_columns
from guerdon.integrations.trl.tool_calls.environments import Environments, environments, is_busy, owner_of
from guerdon.integrations.trl.tool_calls.executor import PendingCall
from guerdon.integrations.trl.tool_calls.turns import ToolTurns


class ConcurrentToolCalls(Mixin):  # type: ignore[misc]  # trl is not typed
    """The mixin. A plain ``environment_factory`` gets `environments` with default timeouts."""

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
        score: Callable[[Any], Any] = super()._generate_and_score_completions
        if self.environment_factories is None:
            return score(inputs)
        pool = self._environment_pool
        free = self._free_environments()
        ahead = _BatchResets(self, inputs)
        owners = self._environment_owners()
        for owner in owners:
            owner.reset_source = None if owner.ordered else ahead.reset
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

    def _free_environments(self) -> dict[Any, list[Any]]:
        """Returns the pool without the environments in use, of batches whose rewards are missing;
        it loses those that an earlier call still has."""
        used = {id(one) for one in self._environments_in_use()}
        free: dict[Any, list[Any]] = {}
        for name, instances in self._environment_pool.items():
            instances[:] = [one for one in instances if id(one) in used or not is_busy(one)]
            free[name] = [one for one in instances if id(one) not in used]
        return free

    def _tool_call_loop(self, prompts: Any, prompt_ids: Any, completion_ids: Any, completions: Any, *rest: Any) -> Any:
        sync, late = self._sync_tool_dicts, self._async_tool_dicts
        turns = ToolTurns(completions, [{**second, **first} for first, second in zip(sync, late, strict=True)])
        # A trainer looks for a name among the sync tools first.
        waiting = [{**tools, **ours} for tools, ours in zip(sync, turns.stand_ins(), strict=True)]
        try:
            with patched(self, {"_sync_tool_dicts": waiting}):
                looped: Any = super()._tool_call_loop(prompts, prompt_ids, completion_ids, completions, *rest)
        finally:
            turns.end()
        metrics = self._metrics["train" if self.model.training else "eval"]
        for name, count in turns.counter.counts().items():
            metrics[f"guerdon/tools/{name}/failed_frac"].append(count.failed / count.calls)
            metrics[f"guerdon/tools/{name}/timeout_frac"].append(count.timeouts / count.calls)
            metrics[f"guerdon/tools/{name}/run_mean_s"].append(count.run_s / count.calls)
        return looped


@dataclass
class _BatchResets:
    """The resets of one batch without an order: the first that is asked for starts all."""

    _trainer: Any
    _inputs: Sequence[Mapping[str, Any]]
    _started: dict[int, tuple[Mapping[str, Any], PendingCall]] | None = None

    def reset(self, owner: Environments, environment: object, kwargs: Mapping[str, Any]) -> PendingCall:
        """The reset of `environment`: the one started ahead, if its arguments are as expected."""
        if self._started is None:
            self._started = {}
            for one, row in zip(self._trainer.environments, self._inputs, strict=True):
                maker = owner_of(one)
                if maker is not None and not maker.ordered:
                    given = {k: v for k, v in row.items() if not self._trainer._multi_environment or k != "environment"}
                    self._started[id(one)] = given, maker.reset(one, given)
        expected, pending = self._started.pop(id(environment), ({}, None))
        if pending is not None:
            if expected.keys() == kwargs.keys() and all(expected[key] is kwargs[key] for key in kwargs):
                return pending
            pending.cancel()
        return owner.reset(environment, kwargs)

    def end(self) -> None:
        """Cancels what nobody asked for, because of an earlier exception."""
        for _, pending in (self._started or {}).values():
            pending.cancel()

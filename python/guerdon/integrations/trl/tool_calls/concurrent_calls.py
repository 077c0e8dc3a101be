"""Tools and environments of a synchronous trainer on the engine, samples side by side.

A mixin to stand before TRL's trainer in a class. It overrides methods and replaces attributes of its own instance, and
copies none of TRL's code; `tests/integrations/trl/pipeline/test_trl_internals.py` fails where TRL moves what it relies on.

- B-1  Tool calls of a turn start together for all samples (`Turns`); resets of a batch start together for all samples.
- B-2  When the completions of a batch have ended, and before anything else, the trainer's environments become their
       snapshots: whoever scores sees what the completions left, whenever he looks.
- B-3  An environment's own ``get_reward`` is a reward column of a dispatcher: concurrent, with a deadline, its failures
       as those of any other function.
- B-4  A batch never begins with an environment that an abandoned call still has.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from guerdon._registration.callables import is_async
from guerdon._trainer.column import RewardColumn
from guerdon.dispatcher import Dispatcher
from guerdon.functions import reward
from guerdon.integrations.trl.reward_funcs import dispatcher_of
from guerdon.integrations.trl.tool_calls.deep_copy import PLAIN, itself, plain_type
from guerdon.integrations.trl.tool_calls.environments import (
    REWARD,
    Environments,
    environments,
    environments_of,
    environments_of_kind,
)
from guerdon.integrations.trl.tool_calls.executor import Count, Running, Tally
from guerdon.integrations.trl.tool_calls.proxies import tally_of
from guerdon.integrations.trl.tool_calls.snapshots import snapshots
from guerdon.integrations.trl.tool_calls.turns import Turns
from guerdon.limits import Limit

__all__ = ["SideBySide", "own_rewards"]

# Own rewards that may be computed at once in this process.
_TOGETHER = 128


class SideBySide:
    """The mixin. A trainer's ``environment_factory`` is routed by it, with the default deadlines, if it isn't yet."""

    # The trainer's own.
    environment_factories: Any
    environments: Any
    reward_funcs: Any
    tools: Any
    model: Any
    async_loop: Any
    _environment_pool: Any
    _sync_tool_dicts: Any
    _async_tool_dicts: Any
    _metrics: Any

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        given = inspect.signature(super().__init__).bind(*args, **kwargs)
        factory = given.arguments.get("environment_factory")
        if factory is not None:
            given.arguments["environment_factory"] = environments(factory)
        super().__init__(*given.args, **given.kwargs)
        if factory is not None:
            self._own_rewards = own_rewards(self)

    def _generate_and_score_completions(self, inputs: Any) -> Any:
        score: Callable[[Any], Any] = super()._generate_and_score_completions  # type: ignore[misc]
        if self.environment_factories is None:
            return score(inputs)
        self._renew_environments()
        ahead = _Resets(self, inputs)
        hubs = [hub for hub in self.environment_factories.values() if isinstance(hub, Environments)]
        for hub in hubs:
            hub.ahead = ahead
        try:
            return score(inputs)
        finally:
            for hub in hubs:
                hub.ahead = None
            ahead.end()

    def _generate(self, prompts: Any) -> Any:
        generated = super()._generate(prompts)  # type: ignore[misc]
        if self.environments:  # B-2
            needed = any(asks_for_environments(function) for function in self.reward_funcs)
            self.environments = snapshots(self.environments, needed=needed, reused=_looks_ahead(self))
        return generated

    def _tool_call_loop(self, prompts: Any, prompt_ids: Any, completion_ids: Any, completions: Any, *rest: Any) -> Any:
        kept = self._sync_tool_dicts, self._async_tool_dicts
        turns = Turns(completions, *kept, lambda: self.async_loop)
        tallies = {id(tally): tally for tool in self.tools if (tally := tally_of(tool)) is not None}
        before = _counts(tallies.values())
        self._sync_tool_dicts, self._async_tool_dicts = turns.stand_ins(), [{} for _ in completions]
        try:
            looped: Any = super()._tool_call_loop(  # type: ignore[misc]
                prompts, prompt_ids, completion_ids, completions, *rest
            )
        finally:
            self._sync_tool_dicts, self._async_tool_dicts = kept
            turns.end()
        metrics = self._metrics["train" if self.model.training else "eval"]
        for name, value in tool_metrics(before, _counts(tallies.values())).items():
            metrics[name].append(value)
        return looped

    def _renew_environments(self) -> None:
        """New instances for those that an abandoned call still has (B-4)."""
        for name, pool in self._environment_pool.items():
            for place, environment in enumerate(pool):
                hub = environments_of(environment)
                if hub is not None and hub.busy_in(environment) is not None:
                    pool[place] = self.environment_factories[name]()


class _Resets:
    """The resets of one batch: the first that is asked for starts all."""

    def __init__(self, trainer: Any, inputs: Sequence[Mapping[str, Any]]) -> None:
        self._trainer = trainer
        self._inputs = inputs
        self._started: dict[int, tuple[Mapping[str, Any], Running]] | None = None

    def reset(self, environment: object, kwargs: Mapping[str, Any]) -> Running:
        """The reset of `environment`, started ahead if its arguments are what was foreseen."""
        if self._started is None:
            self._started = {}
            for one, row in zip(self._trainer.environments, self._inputs, strict=True):
                hub = environments_of(one)
                if hub is not None:
                    given = {k: v for k, v in row.items() if not self._trainer._multi_environment or k != "environment"}
                    self._started[id(one)] = given, hub.reset(one, given)
        foreseen, running = self._started.pop(id(environment), ({}, None))
        if running is not None:
            if foreseen.keys() == kwargs.keys() and all(foreseen[key] is kwargs[key] for key in kwargs):
                return running
            running.cancel()
        hub = environments_of(environment)
        assert hub is not None  # only routed environments come here
        return hub.reset(environment, kwargs)

    def end(self) -> None:
        """Cancels what nobody asked for, because an exception came before."""
        for _, running in (self._started or {}).values():
            running.cancel()


def own_rewards(trainer: Any) -> Dispatcher | None:
    """Puts columns of a dispatcher in the place of what a trainer made of its environments' ``get_reward`` (B-3).

    Returns:
        The dispatcher; None if no environment has a reward of its own.
    """
    places = {}
    for place, function in enumerate(trainer.reward_funcs):
        kind = _kind_of(function)
        if kind is not None:
            places[place] = kind
    if not places:
        return None
    dispatcher = dispatcher_of_own(list(places.values()))
    for place, column in zip(places, dispatcher, strict=True):
        trainer.reward_funcs[place] = column
    return dispatcher


def dispatcher_of_own(kinds: Sequence[type]) -> Dispatcher:
    """A dispatcher with the ``get_reward`` of each of these classes of environments."""
    functions = []
    for kind in kinds:
        hub = environments_of_kind(kind)
        plain: Any = kind.__dict__.get(PLAIN, kind)
        one = _AsyncOwnReward(plain) if is_async(plain.get_reward) else _OwnReward(plain)
        timeout = None if hub is None else hub.time_of(REWARD)
        functions.append(reward(one, name=plain.__name__, timeout=timeout, limit=Limit(concurrency=_TOGETHER)))
    return Dispatcher(functions, workers=1)


class _OwnReward:
    """``get_reward`` of one class of environments; no opinion on others."""

    def __init__(self, kind: type) -> None:
        self._kind = kind
        self._function: Any = getattr(kind, REWARD)

    def __call__(self, environment: Any) -> Any:
        return self._function(itself(environment)) if plain_type(environment) is self._kind else None


class _AsyncOwnReward(_OwnReward):
    async def __call__(self, environment: Any) -> Any:
        return await self._function(itself(environment)) if plain_type(environment) is self._kind else None


def asks_for_environments(function: Any) -> bool:
    """Whether a trainer's reward function names environments, or a function of its dispatcher does."""
    if isinstance(function, RewardColumn):
        specs = [spec for spec in dispatcher_of(function).specs if not isinstance(spec.target, _OwnReward)]
        named = {name for spec in specs for name in (*spec.wants.named, *(spec.finish.named if spec.finish else ()))}
        return not named.isdisjoint(("environment", "environments"))
    try:
        return "environments" in inspect.signature(function).parameters
    except (TypeError, ValueError):  # a reward model, something of C
        return False


def tool_metrics(before: Mapping[str, Count], after: Mapping[str, Count]) -> dict[str, float]:
    """What a batch added to the counts, as metrics."""
    metrics = {}
    for name, count in after.items():
        old = before.get(name, Count())
        calls = count.calls - old.calls
        if calls:
            metrics[f"guerdon/tools/{name}/failed_frac"] = (count.failed - old.failed) / calls
            metrics[f"guerdon/tools/{name}/timeout_frac"] = (count.timeouts - old.timeouts) / calls
            metrics[f"guerdon/tools/{name}/run_mean_s"] = (count.run_s - old.run_s) / calls
    return metrics


def _counts(tallies: Any) -> dict[str, Count]:
    counts: dict[str, Count] = {}
    each: Tally
    for each in tallies:
        counts.update(each.counts())
    return counts


def _kind_of(function: Any) -> type | None:
    """The class whose ``get_reward`` a trainer wrapped in this function; None for any other function."""
    if not getattr(function, "__qualname__", "").endswith("__init__.<locals>.get_reward"):
        return None
    parameter = inspect.signature(function).parameters.get("_env_type")
    kind = None if parameter is None else parameter.default
    return kind if isinstance(kind, type) else None


def _looks_ahead(trainer: Any) -> bool:
    """Whether environments are reset for another batch before this one's rewards are known."""
    pipeline, args = getattr(trainer, "pipeline", None), trainer.args
    if pipeline is None or not pipeline.mini_batch:
        return pipeline is not None and pipeline.lookahead > 0
    # Evaluation resets them too, and comes between two optimizer steps: with mini-batches, on one and the same batch.
    within = args.gradient_accumulation_steps % args.steps_per_generation
    evaluates = str(getattr(args.eval_strategy, "value", args.eval_strategy)) != "no"
    return pipeline.lookahead > 0 or (within > 0 and evaluates)

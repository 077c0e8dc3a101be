"""Makes a `FunctionSpec` of one entry of a dispatcher's list.

- Every default (lane, shape, loop, timeout) is decided here.
- Entries that can't work are refused here, before anything starts.

Default lanes: asyncio for async functions, thread for those that take environments (live objects),
process for all others. An undecorated sync function gets one worker for itself, as module state
needs.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import replace
from typing import Any, Final

from guerdon._functions import options, resource_limits
from guerdon._functions.cache_folder import checked_cache
from guerdon._functions.callables import innermost, is_async, is_reward_model, name_of
from guerdon._functions.conditions import checked_run_if
from guerdon._functions.factory import refuse_uncalled_factory
from guerdon._functions.options import Lane, Options
from guerdon._functions.policy import checked_policy
from guerdon._functions.signature import (
    Contract,
    Shape,
    inspect_finish,
    inspect_wants,
    names_environments,
    parameter_names,
)
from guerdon._functions.spec import FunctionSpec
from guerdon._functions.stateful import StatefulReward
from guerdon.errors import RegistrationError

__all__ = ["UNDECORATED_LOOP", "build", "spec_of"]

UNDECORATED_LOOP: Final = "<undecorated>"
"""The loop that undecorated async functions share; ``loop=`` refuses names in angle brackets."""


def spec_of(item: object) -> FunctionSpec:
    """The spec of one entry of a dispatcher's list.

    Raises:
        RegistrationError: It is not a reward function, or an invalid one.
    """
    decorated = getattr(type(item), "__guerdon_decorated__", False)
    spec = getattr(item, "spec", None) if decorated else None
    if isinstance(spec, FunctionSpec):
        _refuse_unbound(spec)
        return replace(spec, item=item)
    if isinstance(item, StatefulReward):
        return build(item, Options(), "sample", decorated=False)
    spec = build(item, Options(), "batch", decorated=False)
    _refuse_unbound(spec)
    return spec


def build(target: object, given: Options, shape: Shape, *, decorated: bool) -> FunctionSpec:
    """The spec of one function: checks the options, inspects it, fills in the defaults.

    Raises:
        RegistrationError: It can't work.
    """
    target = _callable(target, shape)
    shape = _shape(target, given, shape)
    stateful = isinstance(target, StatefulReward)
    if stateful and shape == "group":
        raise RegistrationError(
            f"{_show(target)} is a StatefulReward: group_reward() takes functions. Put it into the list itself, or use "
            "reward() to give it options; what needs a whole group goes into finish_group(self, scores, **columns)."
        )
    name = options.label(name_of(target), "name", given.name) or name_of(target)
    rowwise = options.flag(name, "rowwise", given.rowwise)
    if rowwise and stateful:
        raise RegistrationError(
            f"reward function {name!r}: rowwise is for functions that take lists; a StatefulReward's score() takes one sample."
        )
    batch_size, batch_wait = options.batching(name, given.batch_size, given.batch_wait)
    if batch_size is not None and shape == "group":
        raise RegistrationError(
            f"reward function {name!r}: batch_size= puts samples of any groups and batches into one call, but a call of a group "
            "function is one whole group. Leave batch_size out; or, if it scores each sample by itself, decorate it with "
            "@reward(batch_size=…), what needs the group going into the finish_group of a StatefulReward."
        )
    run_if = checked_run_if(name, given.run_if, given.otherwise)
    if run_if is not None and shape == "group":
        raise RegistrationError(
            f"reward function {name!r}: run_if= skips single samples, but a call of a group function is one whole group. Leave "
            "run_if out; or, if it scores each sample by itself, decorate it with @reward(run_if=…), what needs the group going "
            "into the finish_group of a StatefulReward."
        )
    called = _called(target, name)
    contract: Contract = "batch" if rowwise else "gathered" if batch_size is not None else shape
    _refuse_generators(called, name, contract)
    wants = inspect_wants(called, name, contract)
    finish = inspect_finish(target.finish_group, name) if stateful and hasattr(target, "finish_group") else None
    returns_awaitable = is_async(called)
    wished = options.flag_or_none(name, "pure", given.pure)
    cache, pure = checked_cache(name, given.cache, given.cache_version, pure=wished)
    if pure and finish is not None:
        raise RegistrationError(
            f"reward function {name!r}: {'pure=True' if cache is None else 'cache='} shares the outcome of identical calls, but this reward's depends on its "
            "group, by finish_group. Leave it out, or make the score a reward of its own."
        )
    if pure and shape == "batch":
        raise RegistrationError(
            f"reward function {name!r}: {'pure=True' if cache is None else 'cache='} shares the outcome of identical calls, but this one "
            "names completions and is called once for the whole batch. Leave it out, or add rowwise=True if its rows are independent."
        )
    live = names_environments(called, wants, contract)
    lane = _lane(name, given, returns_awaitable, live)
    return FunctionSpec(
        name=name,
        item=target,
        target=target,
        lane=lane,
        shape=shape,
        policy=checked_policy(name, given, shape),
        wants=wants,
        rowwise=rowwise,
        batch_size=batch_size,
        batch_wait=batch_wait,
        is_async=returns_awaitable,
        pinned=shape == "batch" and lane == "process" and given.isolation != "call",
        loop=_loop(name, given, lane, shared=shape == "batch"),
        node=options.node(name, given.node, lane, live=live),
        stateful=stateful,
        decorated=decorated,
        finish=finish,
        run_if=run_if,
        pure=bool(pure),
        cache=cache,
    )


def _callable(target: object, shape: Shape) -> Callable[..., Any] | StatefulReward:
    """`target`, if it can score."""
    refuse_uncalled_factory(target)
    if isinstance(target, type):
        raise RegistrationError(
            f"{target.__qualname__} is a class, not a reward function. Did you mean an instance, "
            f"{target.__qualname__}(…)?"
        )
    if is_reward_model(target) and not isinstance(target, StatefulReward):
        instead = " If a function is meant, pass it itself, not its name." if isinstance(target, str) else ""
        raise RegistrationError(
            f"{_show(target)} is a reward model: put it into the dispatcher's list as it is, and the trainer runs it. "
            f"To run it here, write a guerdon.StatefulReward that calls it.{instead}"
        )
    if isinstance(target, StatefulReward) or callable(target):
        return target
    raise RegistrationError(f"{_show(target)} can't be called, so it is no reward function.")


def _shape(target: Callable[..., Any] | StatefulReward, given: Options, shape: Shape) -> Shape:
    """The shape of a decorated function: "batch" if it names ``completions``, as for TRL."""
    if shape != "sample" or isinstance(target, StatefulReward) or given.rowwise or given.batch_size is not None:
        return shape
    names = parameter_names(target)
    return "batch" if "completions" in names and "completion" not in names else shape


def _called(target: Callable[..., Any] | StatefulReward, name: str) -> Callable[..., Any]:
    """Returns the callable that gives a score."""
    if not isinstance(target, StatefulReward):
        return target
    score: Callable[..., Any] | None = getattr(target, "score", None)
    if score is None or not callable(score):
        raise RegistrationError(
            f"reward function {name!r}: {type(target).__qualname__} has no score method. Define score(self, …) with "
            "the values that it needs as parameters, for example score(self, completion, answer)."
        )
    return score


def _refuse_generators(called: Callable[..., Any], name: str, contract: Contract) -> None:
    function = innermost(called)
    if not inspect.isroutine(function):
        function = getattr(function, "__call__", function)  # noqa: B004 - the method itself is inspected
    # a `types.coroutine` is awaited
    yields = inspect.isgeneratorfunction(function) and not is_async(function)
    if inspect.isasyncgenfunction(function) or (contract == "sample" and yields):
        returns = "a number, None or a dict with 'score'" if contract == "sample" else "a list of scores"
        raise RegistrationError(f"reward function {name!r} is a generator (it yields). Return {returns} instead.")


def _refuse_unbound(spec: FunctionSpec) -> None:
    """Refuse ``Class.method``; not when decorating, as the class does not exist yet."""
    target = innermost(spec.target) if callable(spec.target) else spec.target
    if spec.wants.required[:1] == ("self",) and inspect.isfunction(target) and "." in target.__qualname__:
        raise RegistrationError(
            f"reward function {spec.name!r} is an unbound method: {target.__qualname__} takes 'self'. "
            "Pass the method of an instance, as in [instance.method]."
        )


def _lane(name: str, given: Options, returns_awaitable: bool, live: bool) -> Lane:
    lane = options.lane(name, given.lane)
    if lane == "process" and live:
        raise RegistrationError(
            f"reward function {name!r} takes live environments, which can't leave this process: lane='process' is "
            "not possible. Use lane='thread', or lane='asyncio' for an async function."
        )
    if lane is None:
        lane = "asyncio" if returns_awaitable else "thread" if live else "process"
    if lane != "process" and options.isolation(name, given.isolation) == "call":
        raise RegistrationError(
            f"reward function {name!r}: isolation='call' forks a worker for each call, but it runs on the {lane} lane. "
            "Add lane='process', or leave isolation out."
        )
    if lane != "process":
        resource_limits.refuse_on_other_lanes(name, given, lane)
    return lane


def _loop(name: str, given: Options, lane: Lane, *, shared: bool) -> str | None:
    asked = options.label(name, "loop", given.loop)
    if asked is not None and asked.startswith("<"):
        raise RegistrationError(
            f"reward function {name!r}: loop={asked!r}: names in angle brackets are reserved. Choose another."
        )
    if lane != "asyncio":
        if asked is not None:
            raise RegistrationError(
                f"reward function {name!r}: loop={asked!r} names an event loop, but it runs on the {lane} lane. "
                "Make it async, add lane='asyncio', or leave loop out."
            )
        return None
    return asked or (UNDECORATED_LOOP if shared else f"<of {name}>")


def _show(item: object) -> str:
    text = repr(item)
    return text if len(text) <= 80 else f"{text[:77]}…"

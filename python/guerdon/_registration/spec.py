"""One reward function for the rest of the package: `FunctionSpec`.

- It is complete: every default (lane, shape, loop, timeout) is decided here.
- What can't work is refused here, before anything starts.
- Each registration makes its own spec: dispatchers share no state through a decorated function.

Default lanes: asyncio for async functions, thread for those that take environments (live objects),
process for all others. An undecorated sync function gets one worker of its own, as module state
needs.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any, Final

from guerdon._launcher import world_size
from guerdon._registration import options, resource_limits
from guerdon._registration.cache_folder import CacheFolder, checked_cache
from guerdon._registration.callables import innermost, is_async, is_reward_model, name_of
from guerdon._registration.conditions import Conditions, checked_run_if
from guerdon._registration.options import Isolation, Lane, Node, OnFailure, Options
from guerdon._registration.signature import Contract, Shape, Wants, inspect_finish, inspect_wants, names_environments
from guerdon.errors import RegistrationError
from guerdon.limits import USUAL_CONCURRENCY, DefaultLimit, Limit
from guerdon.stateful import StatefulReward

if TYPE_CHECKING:
    from guerdon import _native
    from guerdon._http.compound import CompoundPlan, Criterion
    from guerdon._http.plan import Plan
    from guerdon._http.template import Field
    from guerdon._native import OutcomeStore, SpendingCap, Tariff

__all__ = [
    "UNDECORATED_LOOP",
    "FunctionSpec",
    "Lane",
    "Policy",
    "Shape",
    "Wants",
    "checked_policy",
    "is_reward_model",
    "spec_of",
]

SAMPLE_TIMEOUT: Final = 30.0
LISTS_TIMEOUT: Final = 600.0
UNDECORATED_LOOP: Final = "<undecorated>"
"""The loop that undecorated async functions share; ``loop=`` refuses names in angle brackets."""


@dataclass(frozen=True)
class Policy:
    """The checked policy of one function: seconds and bytes; None means none.

    ``max_failure_rate`` None means the dispatcher's.
    """

    timeout: float
    grace: float = 0.5
    total_timeout: float | None = None
    setup_timeout: float = 300.0
    retries: int = 0
    limit: Limit | None = None
    on_failure: OnFailure = "nan"
    max_failure_rate: float | None = None
    isolation: Isolation = "worker"
    memory_limit: int | None = None
    max_output: int | None = None
    env: tuple[str, ...] = ()


@dataclass(frozen=True, eq=False)
class FunctionSpec:
    """One reward function of one dispatcher.

    Attributes:
        name: Its name in metrics, files and messages. `function_list` checks that it is unique.
        item: The item of the user's list.
        target: What runs: the function, callable object or bound method, or the `StatefulReward`.
        lane: Where it runs.
        shape: What one call scores: one sample, one group, or the whole batch (TRL's contract).
        rowwise: Sample shape of a TRL-contract function: called with lists, of one or
            ``batch_size``.
        batch_size: Sample shape of a function that takes so many samples in one call.
        batch_wait: Seconds that a sample waits for others there, in an open batch.
        is_async: Calling it gives an awaitable, as far as inspection can tell.
        pinned: One worker of its own, one call at a time.
        loop: Name of its event loop (asyncio lane); functions with the same name share it.
        node: "any": of the thread or asyncio lane, and the nodes of a cluster run it.
        stateful: ``target`` is a `StatefulReward`: ``setup``, ``score``, ``close``.
        decorated: It went through ``reward`` or ``group_reward``.
        policy: Timeouts, retries and the like.
        wants: The values that a call gets.
        finish: The values that ``finish_group`` gets with the scores; None without one.
        http: How its calls become requests (http lane).
        run_if: When it is called, if that depends on other functions.
        pure: Identical calls in flight are made once.
        cache: Where its outcomes are kept for later; it is pure then.
        compound: How its calls become several requests, or whose requests fill its cells.
    """

    name: str
    item: object
    target: Callable[..., Any] | StatefulReward
    lane: Lane
    shape: Shape
    policy: Policy
    wants: Wants
    rowwise: bool = False
    batch_size: int | None = None
    batch_wait: float = options.BATCH_WAIT
    is_async: bool = False
    pinned: bool = False
    loop: str | None = None
    node: Node | None = None
    stateful: bool = False
    decorated: bool = False
    finish: Wants | None = field(default=None)
    http: Plan | None = None
    run_if: Conditions | None = None
    pure: bool = False
    cache: CacheFolder | None = None
    compound: CompoundPlan | Criterion | None = None

    @property
    def leaves_process(self) -> bool:
        """Whether it, and the values of its calls, may have to be sent to other processes."""
        return self.lane == "process" or self.node is not None

    @property
    def plans(self) -> tuple[Plan, ...]:
        """Of the http lane: one for each kind of request that its calls make."""
        members = getattr(self.compound, "members", None)
        if members is not None:
            return tuple(member.plan for member in members)
        return () if self.http is None else (self.http,)

    @property
    def uses_tokens(self) -> bool:
        """Whether its requests go to language models, whose use is counted in tokens."""
        return any(plan.api not in ("score", "rewards") for plan in self.plans)

    @property
    def request_fields(self) -> tuple[Field, ...] | None:
        """The columns in its requests, by number; None on other lanes."""
        if self.lane != "http":
            return None
        asks = self.http if self.compound is None else self.compound
        return () if asks is None else asks.fields

    def recipe(self) -> dict[str, Any]:
        """How a lane calls the function; plain values only."""
        return {
            "name": self.name,
            "shape": self.shape,
            "rowwise": self.rowwise and self.batch_size is None,
            "records": list(self.wants.records),
            "stateful": self.stateful,
            "memory_limit": self.policy.memory_limit,
            "max_output": self.policy.max_output,
        }

    @cached_property
    def concurrency(self) -> int | None:
        """Calls in flight at once on this rank; None where the lane decides.

        A function without a limit of its own, on a lane whose calls wait for other machines, shares
        what is usual with the functions of all ranks: they may call one server.
        """
        return self.concurrency_of(world_size())

    def serve_all_ranks(self) -> None:
        """From here on its calls in flight are those of all ranks; before an engine is started."""
        vars(self)["concurrency"] = self.concurrency_of(1)

    def concurrency_of(self, ranks: int) -> int | None:
        """Calls in flight at once on one of so many ranks that share what is usual."""
        limit = self.policy.limit
        if isinstance(limit, DefaultLimit) or (limit is None and self.lane == "asyncio"):
            alone = None if limit is None else limit.concurrency
            return alone if ranks == 1 else max(1, USUAL_CONCURRENCY // ranks)
        return None if limit is None else limit.concurrency

    def config(
        self,
        positions: Mapping[str, int] | None = None,
        dispatchers_cap: SpendingCap | None = None,
        cache: tuple[OutcomeStore, bytes] | None = None,
        *,
        has_nodes: bool = False,
    ) -> _native.FunctionConfig:
        """The function's configuration for the engine.

        Args:
            positions: Of the functions in their list, by name: for gates and rubrics.
            dispatchers_cap: What all functions of its dispatcher may spend together.
            cache: Its cache folder, opened, and its version.
            has_nodes: Whether the engine has nodes.
        """
        from guerdon._native import FunctionConfig
        from guerdon._worker_environment import given_to
        from guerdon.limits import native

        policy, compound = self.policy, self.compound
        leads, follows = (
            (None, None) if compound is None else compound.native(self.name, positions or {}, dispatchers_cap)
        )
        return FunctionConfig(
            self.name,
            lane=self.lane,
            shape=self.shape,
            timeout=policy.timeout,
            grace=policy.grace,
            setup_timeout=policy.setup_timeout,
            total_timeout=policy.total_timeout,
            retries=policy.retries,
            concurrency=self.concurrency,
            isolation=policy.isolation,
            pinned=self.pinned,
            finish=self.finish is not None,
            loop=self.loop,
            on_failure=policy.on_failure,
            memory_limit=policy.memory_limit,
            max_output=policy.max_output,
            env=given_to(policy.env),
            # Of several requests each takes a permit, and none the call.
            limit=None if compound is not None else native(policy.limit, self.lane),
            http=None
            if self.http is None or compound is not None
            else self.http.config(self.name, tariff=self.tariff(dispatchers_cap)),
            compound=leads,
            follows=follows,
            gather=None if self.batch_size is None else (self.batch_size, self.batch_wait, self._across),
            run_if=None if self.run_if is None else self.run_if.native(positions or {}),
            pure=self.pure,
            cache=cache,
            anywhere=has_nodes and self.node is not None,
        )

    def tariff(self, dispatchers_cap: SpendingCap | None) -> Tariff | None:
        """What its requests cost, if it makes any."""
        limit = self.policy.limit
        key = None if limit is None else limit.key
        return None if self.http is None else self.http.cost.tariff(self.name, key, dispatchers_cap)

    @property
    def _across(self) -> bool:
        """Whether one call may hold samples of several batches; records would belong to none."""
        return not self.wants.records


def spec_of(item: object) -> FunctionSpec:
    """The spec of one entry of a dispatcher's list.

    Raises:
        RegistrationError: It is no reward function, or an invalid one.
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
    cache, pure = checked_cache(name, given.cache, given.cache_size, given.cache_version, pure=wished)
    if pure and finish is not None:
        raise RegistrationError(
            f"reward function {name!r}: {'pure=True' if cache is None else 'cache='} shares the outcome of identical calls, but this reward's depends on its "
            "group, by finish_group. Leave it out, or make the score a reward of its own."
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
        pinned=shape == "batch" and lane == "process",
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


def _called(target: Callable[..., Any] | StatefulReward, name: str) -> Callable[..., Any]:
    """What is called for a score."""
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


def checked_policy(name: str, given: Options, shape: Shape) -> Policy:
    """The checked policy of a function of this shape, with its defaults.

    Raises:
        RegistrationError: An option is invalid.
    """
    timeout = SAMPLE_TIMEOUT if shape == "sample" else LISTS_TIMEOUT
    return Policy(
        timeout=timeout if given.timeout is None else options.seconds(name, "timeout", given.timeout),
        grace=options.seconds(name, "grace", given.grace, zero=True),
        total_timeout=None
        if given.total_timeout is None
        else options.seconds(name, "total_timeout", given.total_timeout),
        setup_timeout=options.seconds(name, "setup_timeout", given.setup_timeout),
        retries=options.retries(name, given.retries),
        limit=options.limit(name, given.limit),
        on_failure=options.on_failure(name, given.on_failure),
        max_failure_rate=options.fraction(name, given.max_failure_rate),
        isolation=options.isolation(name, given.isolation),
        memory_limit=resource_limits.memory_limit(name, given.memory_limit),
        max_output=resource_limits.max_output(name, given.max_output),
        env=resource_limits.environment(name, given.env),
    )


def _show(item: object) -> str:
    text = repr(item)
    return text if len(text) <= 80 else f"{text[:77]}…"

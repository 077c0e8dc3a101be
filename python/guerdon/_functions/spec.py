"""One reward function for the rest of the package: `FunctionSpec`.

- It is complete: `build` has decided every default.
- Each registration makes its own spec: dispatchers share no state through a decorated function.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from functools import cached_property
from itertools import chain
from typing import TYPE_CHECKING, Any, Literal

from guerdon._functions import options
from guerdon._functions.cache_folder import CacheFolder
from guerdon._functions.conditions import Condition, Conditions
from guerdon._functions.factory import Factory
from guerdon._functions.options import Lane, Node
from guerdon._functions.policy import Policy
from guerdon._functions.signature import Shape, Wants
from guerdon._functions.stateful import StatefulReward
from guerdon._system.launcher import world_size
from guerdon.errors import RegistrationError
from guerdon.limits import USUAL_CONCURRENCY, DefaultLimit

if TYPE_CHECKING:
    from guerdon._functions.lane_plan import EndpointList, KernelCalls, Keys, RequestPlan, TextField

__all__ = ["Comparisons", "Composition", "FunctionSpec", "Lane", "Shape", "Wants", "column_of", "with_members"]


@dataclass(frozen=True)
class Comparisons:
    """Pairs of a group's samples that are compared, and the scores made of them: options of
    `guerdon.pairwise`."""

    schedule: Literal["circular", "all", "swiss"]
    rounds: int | None
    score: Literal["bradley_terry", "win_rate"]
    both_orders: bool


@dataclass(frozen=True, eq=False)
class Composition:
    """Composition of a function: its calls become calls of other functions, its members, on any
    lane.

    Attributes:
        kind: ``"votes"`` of one member, a ``"panel"`` of several, a ``"cascade"`` of several, each
            of which is called where the one before it failed or met no condition, a ``"fallback"``
            of two, without conditions, or of one alone, ``"pairwise"`` comparisons by one, or a
            ``"rubric"``, whose columns share one.
        names: Those of the members, as ``result.extra`` calls them.
        members: They have no place in results, and follow all functions that do. Of votes, a panel,
            a cascade or a fallback, they may be composed too. A user's function that reduces the
            scores of the others is the last, without a name.
        reduce: What becomes of their scores; ``"function"``: what that function makes of them.
        needed: How many scores there must be.
        weights: One per member; empty: all count the same.
        min_agreement: Abstain where the most common score has a smaller share of them.
        votes: Calls of the only member at most; None of a panel.
        accept: Conditions of a cascade's members, any of which makes a score the cascade's.
        comparisons: Rules of comparisons, which have none of those above.
        columns: The names of all columns of a rubric; the member is called for the first of them.
        place: Which of the columns it is.
        in_turn: Each column has a request of its own, one after the other.
    """

    kind: Literal["votes", "panel", "cascade", "fallback", "pairwise", "rubric"]
    names: tuple[str, ...]
    members: tuple[FunctionSpec, ...]
    reduce: str = "median"
    needed: int = 1
    weights: tuple[float, ...] = ()
    min_agreement: float | None = None
    votes: int | None = None
    accept: tuple[Condition, ...] = ()
    comparisons: Comparisons | None = None
    columns: tuple[str, ...] = ()
    place: int = 0
    in_turn: bool = False

    @property
    def leaves(self) -> tuple[FunctionSpec, ...]:
        """The functions that it calls: members, and those that composed members call."""
        each = ((member,) if member.composition is None else member.composition.leaves for member in self.members)
        return tuple(chain.from_iterable(each))

    def native(self, positions: Sequence[int], visible: Mapping[str, int]) -> dict[str, Any]:
        """Returns the form for the engine, which has its leaves, and then their parsers, at these
        positions, and functions with a place in results at the `visible` ones.

        Raises:
            RegistrationError: Another column of its rubric is not in the list.
        """
        if self.columns:
            if not all(column in visible for column in self.columns):
                raise RegistrationError(
                    f"{self.columns[self.place]!r} is a column of a rubric: put the rubric itself into the list."
                )
            columns = [visible[column] for column in self.columns]
            return {
                "criterion": {
                    "function": positions[0],
                    "columns": columns,
                    "place": self.place,
                    "in_turn": self.in_turn,
                }
            }
        if self.comparisons is not None:
            return {"pairwise": {"function": positions[0], **asdict(self.comparisons)}}
        return self._opinions(iter(positions))

    def _opinions(self, positions: Iterator[int]) -> dict[str, Any]:
        """Returns the form of votes, a panel or a cascade, whose leaves have the next positions."""
        members = [
            {"function": next(positions)} if member.composition is None else member.composition._opinions(positions)
            for member in self.members
        ]
        places = {name: place for place, name in enumerate(self.names)}
        rules = {
            "kind": self.kind,
            "members": list(zip(self.names, members, strict=False)),
            "votes": self.votes,
            "reduce": members[-1] if self.reduce == "function" else self.reduce,
            "accept": [condition.native(places) for condition in self.accept],
            "weights": list(self.weights),
            "needed": self.needed,
            "min_agreement": self.min_agreement,
        }
        return {"opinions": rules}

    def identity(self) -> tuple[object, ...]:
        """Everything beside its leaves that decides a score."""
        rules = self.reduce, self.needed, self.weights, self.min_agreement, self.votes, self.comparisons, *self.accept
        of_rubric = (self.columns, self.place, self.in_turn) if self.columns else ()
        composed = (
            (member.name, member.composition.identity()) for member in self.members if member.composition is not None
        )
        return self.kind, self.names, *rules, *of_rubric, *composed


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
        composition: How its calls become calls of members (compose lane).
        member_of: The function that calls it, of a member; it has no place in results.
        has_fallback: Whether another member is called where it fails.
        parser: The function that reads the answers of a judge, called by the engine where that is a
            member.
        reduces: It makes one score of a panel's: a member that gets the scores of the others.
        second_columns: Of a member that compares two samples: which of its columns, by number, are
            the second one's.
        kernel: What scores (native lane).
        factory: The call that made it, of a function that comes with Guerdon.
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
    http: RequestPlan | None = None
    run_if: Conditions | None = None
    pure: bool = False
    cache: CacheFolder | None = None
    composition: Composition | None = None
    member_of: str | None = None
    has_fallback: bool = False
    parser: FunctionSpec | None = None
    reduces: bool = False
    second_columns: tuple[int, ...] = ()
    kernel: KernelCalls | None = None
    factory: Factory | None = None

    @property
    def in_workers(self) -> bool:
        """Returns whether workers call it: functions of the process lane, and code rewards, whose
        drivers are such."""
        return self.lane in ("process", "code")

    @property
    def leaves_process(self) -> bool:
        """Returns whether it, and the values of its calls, may have to be sent to other
        processes."""
        return self.in_workers or self.node is not None

    @property
    def can_fall_back(self) -> bool:
        """True if another member scores the samples on which its own judge fails."""
        composition = self.composition
        return composition is not None and composition.kind == "fallback" and len(composition.names) > 1

    @property
    def called(self) -> tuple[FunctionSpec, ...]:
        """The functions that its calls run: its leaves and then their parsers, or itself."""
        if self.composition is None:
            return (self,)
        if self.composition.place > 0:
            return ()  # the first column of its rubric calls them
        leaves = self.composition.leaves
        return (*leaves, *(leaf.parser for leaf in leaves if leaf.parser is not None))

    @property
    def plans(self) -> tuple[RequestPlan, ...]:
        """The plans of its requests, on the http lane: one for each kind of request that its calls
        make."""
        if self.composition is not None:
            shared = self.composition.members if self.composition.in_turn else self.called
            return tuple(plan for member in shared for plan in member.plans)
        return () if self.http is None else (self.http,)

    @property
    def fleet(self) -> EndpointList | None:
        """The endpoints that its own requests go to."""
        return None if self.http is None else self.http.fleet

    @property
    def uses_tokens(self) -> bool:
        """Returns whether its requests go to language models, whose use is counted in tokens."""
        return any(plan.api not in ("score", "rewards", "sandbox") for plan in self.plans)

    @property
    def is_engine_made(self) -> bool:
        """Returns whether it comes with its lane, and is not a function of the user's."""
        return self.lane in ("http", "native", "code", "compose")

    @property
    def text_fields(self) -> tuple[TextField, ...] | None:
        """The columns that the engine gets as texts, by number; None on other lanes."""
        if self.kernel is not None:
            return self.kernel.fields
        if self.lane != "http":
            return None
        return () if self.http is None else self.http.fields

    def as_member_of(self, owner: str, name: str) -> FunctionSpec:
        """The function as a member of another, under this name: what is said of samples, rather
        than of calls, is the owner's."""
        policy = replace(self.policy, total_timeout=None, on_failure="nan", max_failure_rate=None)
        parser = None if self.parser is None else replace(self.parser, name=f"{name}/parse", member_of=owner)
        member = self.with_members(lambda member: member.as_member_of(owner, f"{owner}/{member.name}"))
        return replace(
            member, name=name, member_of=owner, policy=policy, run_if=None, pure=False, cache=None, parser=parser
        )

    def with_members(self, change: Callable[[FunctionSpec], FunctionSpec]) -> FunctionSpec:
        """The function with changed members, if it has any."""
        if self.composition is None:
            return self
        members = tuple(map(change, self.composition.members))
        return replace(self, composition=replace(self.composition, members=members))

    def with_fallback(self) -> FunctionSpec:
        """The function where another one is called if it fails."""
        return replace(self.with_members(FunctionSpec.with_fallback), has_fallback=True)

    def composed(self, composition: Composition) -> FunctionSpec:
        """The function, its calls being those of members: what is said of calls is theirs."""
        policy = replace(self.policy, retries=0, limit=None)
        return replace(
            self,
            lane="compose",
            composition=composition,
            policy=policy,
            http=None,
            loop=None,
            node=None,
            pinned=False,
            parser=None,
        )

    def recipe(self) -> dict[str, Any]:
        """Returns the recipe for calls on the function's lane; plain values only."""
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

        A function without a limit, on a lane whose calls wait for other machines, shares the usual
        concurrency with the functions of all ranks: they may call one server.
        """
        return self.concurrency_of(world_size())

    def concurrency_of(self, ranks: int) -> int | None:
        """Calls in flight at once on one of `ranks` ranks that share the usual concurrency."""
        limit = self.policy.limit
        if isinstance(limit, DefaultLimit) or (limit is None and self.lane == "asyncio"):
            alone = None if limit is None else limit.concurrency
            return alone if ranks == 1 else max(1, (alone or USUAL_CONCURRENCY) // ranks)
        return None if limit is None else limit.concurrency

    def config(
        self,
        positions: Mapping[str, int] | None = None,
        keys: Keys | None = None,
        *,
        members: Sequence[int] = (),
        parsing: Mapping[str, int] | None = None,
        has_nodes: bool = False,
    ) -> dict[str, Any]:
        """The function's configuration for the engine.

        Args:
            positions: Of the functions in their list, by name: for gates, rubrics and members.
            keys: Gets the requests for API keys; None leaves out all keys.
            members: Positions of its members, and then of their parsers.
            parsing: ``{"by": position}`` of its parser, or ``{"of": position}`` of its judge.
            has_nodes: Whether the engine has nodes.
        """
        from guerdon.limits import native

        positions, policy, concurrency = positions or {}, self.policy, self.concurrency
        config = self.lane_config(concurrency)
        config["anywhere"] = has_nodes and self.node is not None
        function = config["function"]
        function["run_if"] = None if self.run_if is None else self.run_if.native(positions)
        function["pure"] = self.pure
        function["member_of"] = None if self.member_of is None else positions[self.member_of]
        function["has_fallback"] = self.has_fallback
        function["parsing"] = parsing
        function["reduces"] = self.reduces
        function["second_columns"] = self.second_columns
        number = isinstance(policy.on_failure, float)
        function["policy"] |= {
            "total_timeout": policy.total_timeout,
            "retries": policy.retries,
            "limit": native(policy.limit, self.lane, concurrency),
            "on_failure": {"value": policy.on_failure} if number else policy.on_failure,
        }
        if self.http is not None:
            config["http"] = self.http.config(self.name, keys, self.tariff())
        if self.composition is not None:
            config["compose"] = self.composition.native(members, positions)
            config["parsed"] = len(members) > len(self.composition.leaves)
        if self.kernel is not None:
            config["kernel"] = self.kernel.config()
        return config

    def lane_config(self, concurrency: int | None) -> dict[str, Any]:
        """Returns the part of the configuration that the function's lane needs, wherever it is.

        Args:
            concurrency: Calls in flight at once.
        """
        from guerdon._system.worker_environment import given_to

        policy = self.policy
        gather = {"max_size": self.batch_size, "max_wait": self.batch_wait, "across": self._across}
        return {
            "lane": self.lane,
            "loop": self.loop,
            "resource_limits": {
                "memory_limit": policy.memory_limit,
                "max_output": policy.max_output,
                "environment": given_to(policy.env),
            },
            "function": {
                "name": self.name,
                "shape": self.shape,
                "gather": None if self.batch_size is None else gather,
                "finish": self.finish is not None,
                "pinned": self.pinned,
                "isolated": policy.isolation == "call",
                "policy": {
                    "timeout": policy.timeout,
                    "grace": policy.grace,
                    "setup_timeout": policy.setup_timeout,
                    "concurrency": concurrency,
                },
            },
        }

    def tariff(self) -> dict[str, Any] | None:
        """Returns the prices of its requests, if it makes any."""
        limit = self.policy.limit
        return None if self.http is None else self.http.cost.tariff(self.name, None if limit is None else limit.key)

    @property
    def _across(self) -> bool:
        """Returns whether one call may hold samples of several batches; records would belong to
        none."""
        return not self.wants.records


def column_of(name: str) -> str:
    """The column behind a name of a function that compares two samples: ``completion`` of
    ``completion_a`` and ``completion_b``."""
    return name[:-2] if name.endswith(("_a", "_b")) else name


def with_members(specs: Iterable[FunctionSpec]) -> tuple[FunctionSpec, ...]:
    """The functions as the engine has them: those with a place in results, then their members."""
    specs = tuple(specs)
    return (*specs, *(member for spec in specs if spec.composition is not None for member in spec.called))

"""Judges asked several times or with a fallback, panels, and comparisons, as items of a
dispatcher's list."""

from __future__ import annotations

import inspect
import itertools
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import Any

from guerdon._functions.build import spec_of
from guerdon._functions.cache_folder import checked_cache
from guerdon._functions.callables import is_async, name_of
from guerdon._functions.conditions import checked_run_if
from guerdon._functions.options import Lane, Options
from guerdon._functions.policy import Policy, checked_policy
from guerdon._functions.reward_function import RewardFunction
from guerdon._functions.signature import SAMPLE_NAMES, Wants
from guerdon._functions.spec import Comparisons, Composition, FunctionSpec, column_of
from guerdon._functions.stateful import StatefulReward
from guerdon._lanes.http.plan import Plan
from guerdon._lanes.http.reward import HttpReward, is_given
from guerdon.errors import RegistrationError

__all__ = [
    "OF_SCORES",
    "CompositeReward",
    "compared",
    "compared_by",
    "composed_of",
    "member_spec",
    "member_specs",
    "parser_of",
    "reducer_of",
    "with_fallback",
    "with_parser",
]

_PARSES_WITHIN_S = 5.0
_MOST_MEMBERS = 64
# Options of the scores, for every kind of composite.
OF_SCORES = ("total_timeout", "on_failure", "max_failure_rate")
# Values that stay in this process, where a comparison's may go to another.
_LIVE = ("environment", "trainer_state")


class CompositeReward(HttpReward):
    """A reward function whose calls are calls of others: made by `guerdon.panel`,
    `guerdon.cascade`, `guerdon.pairwise`, and by `guerdon.judge` with ``votes=`` or ``fallback=``.

    Attributes:
        spec: What the dispatcher needs to know about it.
    """

    def __init__(self, made: tuple[Callable[..., HttpReward], dict[str, Any]], spec: FunctionSpec) -> None:
        self._made = made
        self.spec = replace(spec, item=self, target=self)
        self.__name__ = spec.name

    def __repr__(self) -> str:
        composition = self.spec.composition
        assert composition is not None
        if composition.kind in ("panel", "cascade"):
            return f"<{composition.kind} {self.name!r}: {len(composition.names)} members>"
        if composition.kind == "fallback":
            return repr(composition.members[0].item)
        (member,) = composition.members
        place = name_of(member.target) if member.lane != "http" else repr(member.item).split(": ", 1)[1][:-1]
        return f"<{composition.kind} {self.name!r}: {place}>"


def member_spec(owner: str, kind: str, member: object) -> FunctionSpec:
    """A function that can be a member: a composite too, unless it scores whole groups or several
    columns, or the owner compares.

    Args:
        owner: The name of the function that calls it.
        kind: The word for that in messages, such as ``"panel"``.

    Raises:
        RegistrationError: It can't be one.
    """
    wrong = f"reward function {owner!r}: "
    if not isinstance(member, (HttpReward, RewardFunction, StatefulReward)):
        raise RegistrationError(
            f"{wrong}{member!r} can't be a member: expected what guerdon.judge, guerdon.http_reward or guerdon.reward makes, or a "
            "guerdon.StatefulReward."
        )
    spec = spec_of(member)
    judge = _parsed(spec)
    if spec.composition is not None and judge is None:
        if kind == "comparison":
            raise RegistrationError(
                f"{wrong}the member {spec.name!r} makes several calls itself: a comparison takes a function that makes one."
            )
        if spec.composition.kind in ("pairwise", "rubric"):
            what = "a whole group" if spec.composition.kind == "pairwise" else "several columns"
            raise RegistrationError(
                f"{wrong}the member {spec.name!r} scores {what} at once: a {kind} is about one sample. Put it into the "
                "dispatcher's list itself; run_if= says for which samples it is called."
            )
    if spec.shape != "sample" or spec.finish is not None:
        whole = "the whole batch" if spec.shape == "batch" else "a whole group"
        raise RegistrationError(
            f"{wrong}the member {spec.name!r} scores {whole} at once: a {kind} is about one sample."
        )
    if spec.cache is None and spec.pure and (not isinstance(member, HttpReward) or is_given(member, "pure", True)):
        raise RegistrationError(f"{wrong}the member {spec.name!r} has pure=True, which is for functions by themselves.")
    if spec.cache is not None:
        raise RegistrationError(f"{wrong}the member {spec.name!r} has a cache=. Give it to the {kind} instead.")
    if spec.batch_size is not None:
        raise RegistrationError(
            f"{wrong}the member {spec.name!r} has a batch_size: a {kind} asks about one sample at a time."
        )
    for option, value, usual in _of_calls(spec):
        if value != usual:
            raise RegistrationError(f"{wrong}the member {spec.name!r} has a {option}: give it to the {kind}.")
    return judge or spec


def member_specs(owner: str, kind: str, members: object) -> list[FunctionSpec]:
    """The members of a panel or cascade.

    Raises:
        RegistrationError: They can't be members, or two have one name.
    """
    wrong = f"reward function {owner!r}: "
    members = members if isinstance(members, (list, tuple)) else ()
    if not 2 <= len(members) <= _MOST_MEMBERS:
        raise RegistrationError(f"{wrong}members: expected a list of 2 to {_MOST_MEMBERS} functions.")
    specs = [member_spec(owner, kind, member) for member in members]
    called = sum(len(_leaves(spec)) for spec in specs)
    if called > _MOST_MEMBERS:
        raise RegistrationError(f"{wrong}members: they call {called} functions, more than {_MOST_MEMBERS}.")
    names = [path for spec in specs for path in _paths(spec)]
    for each in names:
        if names.count(each) > 1:
            raise RegistrationError(f"{wrong}two members are called {each!r}. Give each a name= of its own.")
    return specs


def _paths(spec: FunctionSpec) -> Iterator[str]:
    """The names of a member, and of those that it calls, in ``result.extra``."""
    yield spec.name
    if spec.composition is not None and spec.composition.kind != "votes":  # theirs have no names
        for member in spec.composition.members:
            yield from _paths(member)


def composed_of(
    made: tuple[Callable[..., HttpReward], dict[str, Any]],
    name: str,
    members: Sequence[FunctionSpec],
    composition: Composition,
) -> HttpReward:
    """A function with these members, and the options that it was given.

    Raises:
        RegistrationError: An option is wrong.
    """
    make, given = made
    folder, _ = checked_cache(name, given["cache"], given["cache_version"], pure=None)
    local = next((spec.name for spec in members if not _is_of_judges(spec)), None)
    if folder is not None and local is not None:
        raise RegistrationError(
            f"reward function {name!r}: cache= is for {composition.kind}s of judges, and the member {local!r} is none."
        )
    options = Options(name=name, **{option: given[option] for option in OF_SCORES})
    return CompositeReward(
        made,
        FunctionSpec(
            name=name,
            item=None,
            target=make,
            lane="compose",
            shape="sample",
            policy=checked_policy(name, options, "sample"),
            wants=_wants_of(members),
            is_async=True,
            decorated=True,
            run_if=checked_run_if(name, given["run_if"], given["otherwise"]),
            pure=folder is not None,
            cache=folder,
            composition=composition,
        ),
    )


def _leaves(spec: FunctionSpec) -> tuple[FunctionSpec, ...]:
    return (spec,) if spec.composition is None else spec.composition.leaves


def _is_of_judges(spec: FunctionSpec) -> bool:
    """Returns whether all members are judges or reward services; a reduce may be a function."""
    return all(leaf.lane == "http" or leaf.reduces for leaf in _leaves(spec))


def _of_calls(spec: FunctionSpec) -> Iterator[tuple[str, object, object]]:
    """Yields the options that a function has for itself alone, with the default of each."""
    yield "total_timeout", spec.policy.total_timeout, None
    yield "on_failure", spec.policy.on_failure, "nan"
    yield "max_failure_rate", spec.policy.max_failure_rate, None
    yield "run_if", spec.run_if, None


def _parsed(spec: FunctionSpec) -> FunctionSpec | None:
    """The judge that a parser of the user's belongs to, where that is all that `spec` is composed
    of."""
    members = () if spec.composition is None or spec.composition.kind != "fallback" else spec.composition.members
    return members[0] if len(members) == 1 else None


def parser_of(name: str, given: Callable[..., Any]) -> FunctionSpec:
    """The parser of a judge's answers, called with the text of one.

    Args:
        name: The judge's.
        given: A function, or what `guerdon.reward` makes of one, with a timeout of its own.

    Raises:
        RegistrationError: It can't run in a worker.
    """
    if getattr(given, "__module__", "") == "guerdon.parse":
        raise RegistrationError(
            f"reward function {name!r}: parse={given!r}: it makes a parser, such as parse.number(), and was not called."
        )
    return _function_of_one(name, "parse", given, "answer", ("process",), timeout=_PARSES_WITHIN_S)


def reducer_of(name: str, given: Callable[..., Any]) -> FunctionSpec:
    """The function that makes one score of a panel's, called with a list of them.

    Args:
        name: The panel's.
        given: A function, or what `guerdon.reward` makes of one, with a lane and a timeout.

    Raises:
        RegistrationError: It can't be called so.
    """
    spec = _function_of_one(name, "reduce", given, "list of scores", ("process", "thread", "asyncio"))
    return replace(spec.as_member_of(name, spec.name), reduces=True)


def _function_of_one(
    name: str, option: str, given: Callable[..., Any], what: str, lanes: Sequence[str], **usual: Any
) -> FunctionSpec:
    """A user's function of one value, which the engine makes.

    Args:
        name: The function that it belongs to.
        option: That it is given by.
        what: The value, in messages.
        lanes: Where it can run.
        usual: Its options, unless it comes from `guerdon.reward`.
    """
    wrong = f"reward function {name!r}: {option}={given!r}: "
    target: Callable[..., Any] = given
    lane: Lane = "process"
    how: dict[str, Any] = {"policy": checked_policy(name, Options(name=f"{name}/{option}", **usual), "sample")}
    if isinstance(given, RewardFunction):
        made = given.spec
        lane = made.lane
        if lane not in lanes or made.shape != "sample" or made.rowwise or made.batch_size is not None or made.stateful:
            where = "in workers (lane='process')" if lanes == ("process",) else "on a lane for Python functions"
            raise RegistrationError(f"{wrong}expected a function of one {what} that runs {where}.")
        for set_option, value, unset in (*_of_calls(made), ("cache", made.cache, None)):
            if value != unset:
                raise RegistrationError(f"{wrong}it has {set_option}=, which is for {name!r}.")
        if made.policy.limit is not None and callable(made.policy.limit.tokens):
            raise RegistrationError(
                f"{wrong}it has Limit(tokens=function), which counts columns of a batch and not a {what}."
            )
        assert not isinstance(made.target, StatefulReward)
        target = made.target
        how = {"policy": made.policy, "loop": made.loop, "node": made.node, "is_async": made.is_async}
    elif isinstance(getattr(given, "spec", None), FunctionSpec):
        raise RegistrationError(f"{wrong}expected a plain function of one {what}, not another reward.")
    if lane == "process" and is_async(target):
        hint = "" if lanes == ("process",) else ": pass guerdon.reward(function)"
        raise RegistrationError(f"{wrong}it is async, and a worker has no loop{hint}.")
    try:
        inspect.signature(target).bind(what)
    except ValueError:  # a builtin without a signature
        pass
    except TypeError as error:
        raise RegistrationError(
            f"{wrong}it is called with the {what} alone, which it does not take: {error}."
        ) from None
    return FunctionSpec(
        name=f"{name}/{option}",
        item=target,
        target=target,
        lane=lane,
        shape="sample",
        wants=Wants(),
        decorated=True,
        **how,
    )


def with_parser(judge: FunctionSpec) -> FunctionSpec:
    """The judge, whose calls are a request and then a call of its parser."""
    members = (judge.as_member_of(judge.name, judge.name),)
    return judge.composed(Composition("fallback", (judge.name,), members, reduce="median", needed=1))


def _wants_of(members: Sequence[FunctionSpec]) -> Wants:
    """The columns of all members. A function of whole lists (``rowwise=True``), whose columns have
    other names, finds its own."""
    columns = (each.wants.required for each in members if each.wants.reserved == SAMPLE_NAMES)
    return Wants(required=tuple(dict.fromkeys(itertools.chain.from_iterable(columns))))


def compared(judge: FunctionSpec, comparisons: Comparisons) -> FunctionSpec:
    """The scores of a group's samples by a judge that compares two: the columns of its prompt end
    in ``_a`` and ``_b``.

    Raises:
        RegistrationError: Its prompt does not name both.
    """
    judge = replace(_parsed(judge) or judge, member_of=None)
    plan = judge.http
    if not isinstance(plan, Plan):
        raise RegistrationError(
            f"reward function {judge.name!r}: a comparison asks one judge once: fallback= is for others."
        )
    second = _second_columns(judge.name, "prompt: a comparison", [field.column for field in plan.fields])
    fields = tuple(replace(field, column=column_of(field.column)) for field in plan.fields)
    required = dict.fromkeys(column for field in fields for column in field.columns)
    member = replace(
        judge.as_member_of(judge.name, judge.name),
        http=replace(plan, fields=fields),
        second_columns=second,
        wants=Wants(required=tuple(required)),
    )
    composed = judge.composed(Composition("pairwise", (judge.name,), (member,), comparisons=comparisons))
    return replace(composed, shape="group", wants=member.wants, pure=False, cache=None)


def compared_by(name: str, better: FunctionSpec, comparisons: Comparisons, policy: Policy) -> FunctionSpec:
    """The scores of a group's samples by a user's function that compares two.

    Raises:
        RegistrationError: Its parameters are not those of a comparison.
    """
    wants, wrong = better.wants, f"reward function {name!r}: "
    others = [*wants.optional, *wants.records, *(column for column in wants.required if column in _LIVE)]
    if others or wants.row or wants.reserved != SAMPLE_NAMES:
        odd = others[0] if others else "**row"
        raise RegistrationError(
            f"{wrong}{better.name!r} takes {odd}, and a comparison gets columns alone, by parameters without defaults: "
            "better(prompt, completion_a, completion_b)."
        )
    second = _second_columns(name, f"{better.name!r}: a comparison", wants.required)
    member = replace(better.as_member_of(name, name), second_columns=second)
    return FunctionSpec(
        name=name,
        item=None,
        target=better.target,
        lane="compose",
        shape="group",
        policy=policy,
        wants=Wants(required=tuple(dict.fromkeys(map(column_of, wants.required)))),
        is_async=True,
        decorated=True,
        composition=Composition("pairwise", (name,), (member,), comparisons=comparisons),
    )


def _second_columns(name: str, what: str, columns: Sequence[str]) -> tuple[int, ...]:
    """Returns the places of the second sample's columns among these."""
    if not all(any(column.endswith(end) for column in columns) for end in ("_a", "_b")):
        raise RegistrationError(
            f"reward function {name!r}: {what} needs both samples, as in {{completion_a}} and {{completion_b}}."
        )
    return tuple(place for place, column in enumerate(columns) if column.endswith("_b"))


def with_fallback(made: HttpReward, fallback: object, votes: int) -> FunctionSpec:
    """The judge, and another function that is called where it fails.

    Raises:
        RegistrationError: They can't be combined.
    """
    judge = made.spec
    wrong = f"reward function {judge.name!r}: "
    if votes != 1:
        raise RegistrationError(
            f"{wrong}fallback= with votes={votes}: a judge with a fallback is asked once. Put the judge with votes= and the "
            "fallback into guerdon.cascade."
        )
    if is_given(made, "pure", True):
        raise RegistrationError(f"{wrong}fallback= with pure=True, which is for functions by themselves.")
    second = member_spec(judge.name, "judge with a fallback", fallback)
    if second.name == judge.name:
        raise RegistrationError(f"{wrong}its fallback is called {judge.name!r}, too. Give that a name= of its own.")
    inner = () if second.composition is None else second.composition.names
    taken = next((each for each in inner if each in ("by", "failed")), None)
    if taken is not None:
        raise RegistrationError(
            f"{wrong}a member of its fallback is called {taken!r}, as a value in result.extra is. Give it another name=."
        )
    if judge.cache is not None and not _is_of_judges(second):
        raise RegistrationError(f"{wrong}cache= is for judges alone, and the fallback {second.name!r} is none.")
    members = (
        judge.as_member_of(judge.name, f"{judge.name}/{judge.name}").with_fallback(),
        second.as_member_of(judge.name, f"{judge.name}/{second.name}"),
    )
    composed = judge.composed(Composition("fallback", (judge.name, second.name), members, reduce="median", needed=1))
    pure = judge.cache is not None or (judge.pure and second.pure and second.lane == "http")
    return replace(composed, wants=_wants_of([judge, second]), pure=pure)

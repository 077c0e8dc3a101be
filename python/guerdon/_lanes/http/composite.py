"""Judges asked several times or with a fallback, and panels, as items of a dispatcher's list."""

from __future__ import annotations

import inspect
import itertools
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

from guerdon._functions.build import spec_of
from guerdon._functions.callables import is_async
from guerdon._functions.options import Options
from guerdon._functions.policy import checked_policy
from guerdon._functions.reward_function import RewardFunction
from guerdon._functions.signature import SAMPLE_NAMES, Wants
from guerdon._functions.spec import Composition, FunctionSpec
from guerdon._functions.stateful import StatefulReward
from guerdon._lanes.http.reward import HttpReward, is_given
from guerdon.errors import RegistrationError

__all__ = ["CompositeReward", "member_spec", "parser_of", "wants_of", "with_fallback", "with_parser"]

_PARSES_WITHIN_S = 5.0


class CompositeReward(HttpReward):
    """A reward function whose calls are calls of others: made by `guerdon.panel`, and by
    `guerdon.judge` with ``votes=`` or ``fallback=``.

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
        if composition.kind == "panel":
            return f"<panel {self.name!r}: {len(composition.members)} members>"
        if composition.kind == "fallback":
            return repr(composition.members[0].item)
        place = repr(composition.members[0].item).split(": ", 1)[1][:-1]
        return f"<votes {self.name!r}: {place}>"


def member_spec(owner: str, kind: str, member: object) -> FunctionSpec:
    """A function that can be a member.

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
    if spec.compound is not None or (spec.composition is not None and judge is None):
        raise RegistrationError(
            f"{wrong}the member {spec.name!r} makes several calls itself: a {kind} takes functions that make one."
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
    policy = spec.policy
    for option, value, usual in (
        ("total_timeout", policy.total_timeout, None),
        ("on_failure", policy.on_failure, "nan"),
        ("max_failure_rate", policy.max_failure_rate, None),
        ("run_if", spec.run_if, None),
    ):
        if value != usual:
            raise RegistrationError(f"{wrong}the member {spec.name!r} has a {option}: give it to the {kind}.")
    return judge or spec


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
    wrong = f"reward function {name!r}: parse={given!r}: "
    if getattr(given, "__module__", "") == "guerdon.parse":
        raise RegistrationError(f"{wrong}it makes a parser, such as parse.number(), and was not called.")
    options = Options(name=f"{name}/parse", timeout=_PARSES_WITHIN_S)
    target = given
    spec = FunctionSpec(
        name=f"{name}/parse",
        item=target,
        target=target,
        lane="process",
        shape="sample",
        policy=checked_policy(name, options, "sample"),
        wants=Wants(),
        decorated=True,
    )
    if isinstance(given, RewardFunction):
        made = given.spec
        if made.lane != "process" or made.shape != "sample" or made.batch_size is not None or made.stateful:
            raise RegistrationError(f"{wrong}expected a function of one text that runs in workers (lane='process').")
        assert not isinstance(made.target, StatefulReward)
        target = made.target
        spec = replace(spec, item=target, target=target, policy=made.policy)
    if is_async(target):
        raise RegistrationError(f"{wrong}it is async, and a parser runs in a worker, which has no loop.")
    try:
        inspect.signature(target).bind("answer")
    except ValueError:  # a builtin without a signature
        pass
    except TypeError as error:
        raise RegistrationError(
            f"{wrong}it is called with the answer alone, which it does not take: {error}."
        ) from None
    return spec


def with_parser(judge: FunctionSpec) -> FunctionSpec:
    """The judge, whose calls are a request and then a call of its parser."""
    members = (judge.as_member_of(judge.name, judge.name),)
    return judge.composed(Composition("fallback", (judge.name,), members, reduce="median", needed=1))


def wants_of(members: Sequence[FunctionSpec]) -> Wants:
    """The columns of all members. A function of whole lists (``rowwise=True``), whose columns have
    other names, finds its own."""
    columns = (each.wants.required for each in members if each.wants.reserved == SAMPLE_NAMES)
    return Wants(required=tuple(dict.fromkeys(itertools.chain.from_iterable(columns))))


def with_fallback(made: HttpReward, fallback: object, votes: int) -> FunctionSpec:
    """The judge, and another function that is called where it fails.

    Raises:
        RegistrationError: They can't be combined.
    """
    judge = made.spec
    wrong = f"reward function {judge.name!r}: "
    if votes != 1:
        raise RegistrationError(f"{wrong}fallback= with votes={votes}: a judge with a fallback is asked once.")
    if is_given(made, "pure", True):
        raise RegistrationError(f"{wrong}fallback= with pure=True, which is for functions by themselves.")
    second = member_spec(judge.name, "judge with a fallback", fallback)
    if second.name == judge.name:
        raise RegistrationError(f"{wrong}its fallback is called {judge.name!r}, too. Give that a name= of its own.")
    if judge.cache is not None and second.lane != "http":
        raise RegistrationError(f"{wrong}cache= is for judges alone, and the fallback {second.name!r} is none.")
    members = (
        replace(judge.as_member_of(judge.name, f"{judge.name}/{judge.name}"), has_fallback=True),
        second.as_member_of(judge.name, f"{judge.name}/{second.name}"),
    )
    composed = judge.composed(Composition("fallback", (judge.name, second.name), members, reduce="median", needed=1))
    pure = judge.cache is not None or (judge.pure and second.pure and second.lane == "http")
    return replace(composed, wants=wants_of([judge, second]), pure=pure)

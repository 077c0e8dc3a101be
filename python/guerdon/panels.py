"""Several opinions: panels and cascades of functions, rubrics of several criteria, and comparisons
in pairs.

Each call or request takes a permit of its function's limit, is tried again by itself, and is
cancelled once it can't matter any more.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from os import PathLike
from typing import Any, Final, Literal

from guerdon import parse as parsers
from guerdon._functions.cache_folder import Cache
from guerdon._functions.conditions import RunIf, checked_conditions
from guerdon._functions.options import Options, flag
from guerdon._functions.policy import checked_policy
from guerdon._functions.spec import Comparisons, Composition
from guerdon._functions.stateful import StatefulReward
from guerdon._lanes.http.composite import (
    OF_SCORES,
    CompositeReward,
    compared,
    compared_by,
    composed_of,
    member_spec,
    member_specs,
    reducer_of,
)
from guerdon._lanes.http.options import name_of, non_empty_text
from guerdon._lanes.http.reward import HttpReward, is_given
from guerdon._lanes.http.rubric import Rubric
from guerdon._lanes.http.server import Server
from guerdon._system.units import integer, number
from guerdon.errors import RegistrationError, with_known_options
from guerdon.functions import reward
from guerdon.judges import judge
from guerdon.limits import Limit
from guerdon.parse import Parse

__all__ = ["Rubric", "cascade", "pairwise", "panel", "rubric"]

_REDUCTIONS = ("median", "mean", "majority", "min", "max")
_WEIGHTED = ("median", "mean", "majority")
_MOST_CRITERIA = 64


@with_known_options
def panel(
    members: Sequence[object],
    *,
    reduce: Literal["median", "mean", "majority", "min", "max"] | Callable[..., Any] = "median",
    weights: Sequence[float] | None = None,
    min_members: int | None = None,
    name: str = "panel",
    total_timeout: float | None = None,
    on_failure: str | float = "nan",
    max_failure_rate: float | None = None,
    run_if: RunIf | None = None,
    otherwise: float | None = None,
    cache: str | PathLike[str] | Cache | None = None,
    cache_version: str | None = None,
) -> HttpReward:
    """Make a reward function out of several others, all of which score each sample.

    Each member keeps its own lane, timeout, retries and limit; a judge its endpoint, key and
    parser. Each member's reward is in ``result.extra["<panel>/<member>"]``, None where a member
    failed or abstained, and what it records in ``"<panel>/<member>/<field>"``.

    Args:
        members: At least two, with different names: what `guerdon.judge`, `guerdon.http_reward`,
            `guerdon.reward`, `guerdon.panel` and `guerdon.cascade` make, and
            `guerdon.StatefulReward` instances. They score one sample at a time: no ``batch_size``
            or ``finish_group``.
        reduce: What becomes of their scores. ``"majority"`` is the most common score; a tie
            abstains. Or a function of yours, called in a worker with a list of the members' scores,
            None where one has none: it returns a score, a dict with ``"score"``, or None to
            abstain. ``reward(function, timeout=5, lane="thread")`` gives it options.
        weights: One per member, above 0: for ``"median"``, ``"mean"`` and ``"majority"``.
        min_members: How many must give a score; all by default. With fewer the sample is an
            `error`; it abstains where abstentions alone are too many. A mean over those that are
            there weighs them by their weights alone.
        name: In metrics, files and messages; unique in a dispatcher.
        total_timeout: As for `guerdon.reward`, like the options below; members have none of them.
        cache: Of what a panel of judges gave, with all its members' opinions.

    Raises:
        RegistrationError: An option is wrong; the message names it.

    Examples:
        >>> from guerdon import judge, panel
        >>> ask = {"model": "m", "prompt": "Grade this from 0 to 10: {completion}"}
        >>> panel([
        ...     judge(base_url="http://localhost:8000/v1", name="small", **ask),
        ...     judge(base_url="http://localhost:9000/v1", name="large", **ask),
        ... ], reduce="mean", weights=[1, 3])
        <panel 'panel': 2 members>
    """
    given = dict(locals())
    name = name_of(name)
    wrong = f"reward function {name!r}: "
    specs = member_specs(name, "panel", members)
    reducer = reducer_of(name, reduce) if callable(reduce) else None
    if reducer is not None and any(spec.name == "reduce" for spec in specs):
        raise RegistrationError(
            f"{wrong}a member is called 'reduce', as is the function of reduce=. Give it another name=."
        )
    if reducer is None and reduce not in _REDUCTIONS:
        ways = ", ".join(map(repr, _REDUCTIONS))
        raise RegistrationError(f"{wrong}reduce={reduce!r}: expected one of {ways}, or a function of the scores.")
    needed = integer(len(specs) if min_members is None else min_members)
    if needed is None or not 1 <= needed <= len(specs):
        raise RegistrationError(f"{wrong}min_members={min_members!r}: expected a whole number from 1 to {len(specs)}.")
    composition = Composition(
        "panel",
        tuple(spec.name for spec in specs),
        (*(spec.as_member_of(name, f"{name}/{spec.name}") for spec in specs), *([reducer] if reducer else [])),
        reduce="function" if callable(reduce) else reduce,
        needed=needed,
        weights=tuple(_weights(name, reduce, weights, len(specs))),
    )
    return composed_of((panel, given), name, specs, composition)


@with_known_options
def cascade(
    members: Sequence[object],
    *,
    accept: Mapping[str, str | Sequence[str]] | None = None,
    name: str = "cascade",
    total_timeout: float | None = None,
    on_failure: str | float = "nan",
    max_failure_rate: float | None = None,
    run_if: RunIf | None = None,
    otherwise: float | None = None,
    cache: str | PathLike[str] | Cache | None = None,
    cache_version: str | None = None,
) -> HttpReward:
    """Make a reward function out of several others, called in turn until one gives an accepted
    score: a small judge first, a large one for the doubtful samples.

    ``result.extra`` has the scores of the called members in ``"<cascade>/<member>"``, their records
    in ``"<cascade>/<member>/<field>"``, and the name of the member whose score counts in
    ``"<cascade>/by"``; where members failed before it, their reasons in ``"<cascade>/failed"``. If
    the last member fails, the sample is an `error` with all reasons.

    Args:
        members: As for `guerdon.panel`, in the order in which they are called. Those before the
            last don't wait for an open circuit breaker.
        accept: By member, the scores that are accepted: conditions as in ``run_if``, any of which
            is enough. Without conditions all scores of a member are, and abstentions too. The last
            member has no conditions.
        name: In metrics, files and messages; unique in a dispatcher.
        total_timeout: As for `guerdon.panel`, like the options below.

    Raises:
        RegistrationError: An option is wrong; the message names it.

    Examples:
        >>> from guerdon import cascade, judge
        >>> ask = {"model": "m", "prompt": "Grade this from 0 to 10: {completion}"}
        >>> cascade([
        ...     judge(base_url="http://localhost:8000/v1", name="small", **ask),
        ...     judge(base_url="http://localhost:9000/v1", name="large", **ask),
        ... ], accept={"small": ["<= 2", ">= 8"]})
        <cascade 'cascade': 2 members>
    """
    given = dict(locals())
    name = name_of(name)
    wrong = f"reward function {name!r}: "
    specs = member_specs(name, "cascade", members)
    names = [spec.name for spec in specs]
    taken = next((each for each in names if each in ("by", "failed")), None)
    if taken is not None:
        raise RegistrationError(
            f"{wrong}a member is called {taken!r}, as a value in result.extra is. Give it another name=."
        )
    example = f'{{"{names[0]}": ["<= 2", ">= 8"]}}'
    accepted = () if accept is None else checked_conditions(name, "accept", accept, example)
    for condition in accepted:
        if condition.source not in names[:-1]:
            raise RegistrationError(
                f"{wrong}accept={accept!r}: expected conditions on members that another one follows, "
                f"{', '.join(map(repr, names[:-1]))}, not on {condition.source!r}."
            )
    asked = [spec.as_member_of(name, f"{name}/{spec.name}") for spec in specs]
    asked[:-1] = [member.with_fallback() for member in asked[:-1]]
    return composed_of(
        (cascade, given), name, specs, Composition("cascade", tuple(names), tuple(asked), accept=accepted)
    )


_ABOUT_TWO: Final = (
    "pass_messages= sends one sample's messages, and a comparison is about two: put {prompt}, {completion_a} and {completion_b} "
    "into prompt=."
)


@partial(with_known_options, others=judge, values=(Server, Limit))
def pairwise(
    better: Callable[..., Any] | StatefulReward | None = None,
    *,
    model: str | None = None,
    prompt: str | Sequence[Mapping[str, str]] | None = None,
    schedule: Literal["circular", "all", "swiss"] = "circular",
    rounds: int | None = None,
    score: Literal["bradley_terry", "win_rate"] = "bradley_terry",
    both_orders: bool = True,
    parse: Parse | None = None,
    name: str = "pairwise",
    **options: Any,
) -> HttpReward:
    """Make a reward function that compares the completions of a group in pairs.

    A judge, or your own function, sees two completions and says which is better. If
    ``both_orders`` is set, it sees them again the other way round: a pair that it judges by place,
    not by content, is a tie. A group of one abstains. ``result.extra`` has, by sample, the
    ``<name>/comparisons`` that counted, and of them the ``<name>/ties`` and the ``<name>/flips``,
    ties because the judge contradicted itself.

    Args:
        better: A function that compares, in place of a judge, on any lane: ``better(prompt,
            completion_a, completion_b)``, with parameters as in ``prompt`` below, or what
            `guerdon.reward` makes of it. It returns 1 for the first, 0 for the second and 0.5 for a
            tie, or a share between; or a dict with that as ``"score"``. Its other fields are in
            ``result.extra``, all of a group in a list at the group's first sample.
        model: As for `guerdon.judge`.
        prompt: The question, with ``{completion_a}`` and ``{completion_b}`` (and any other column
            with ``_a`` or ``_b``) for the two samples; a column without either is the first's, such
            as ``{prompt}``, which both share.
        schedule: Who meets whom in a group of ``G``: each its neighbour (``G`` pairs), ``"all"``
            with all (``G * (G - 1) / 2``), or ``"swiss"``: neighbours in the standings, round after
            round (about ``G / 2 * (log2(G) + 2)``).
        rounds: Of ``"swiss"``; by default ``log2(G) + 2``.
        score: ``"bradley_terry"``: the probability of beating the others of the group, by strengths
            that explain all comparisons; or ``"win_rate"``, the share won. Both from 0 to 1.
        both_orders: Ask about each pair twice.
        parse: Gives 1 for the first, 0 for the second and 0.5 for a tie, or a share between; by
            default ``[[A]]``, ``[[B]]`` and ``[[C]]`` for a tie.
        name: In metrics, files and messages; unique in a dispatcher.
        **options: Of a function ``total_timeout``, ``on_failure`` and ``max_failure_rate``. Of a
            judge all others of `guerdon.judge`, except ``votes`` and ``pass_messages``;
            ``images=["picture_a", "picture_b"]`` shows both samples' images, and a column without
            ``_a`` or ``_b`` those that they share. A pair whose requests fail does
            not count; a sample with fewer than half of its comparisons is an `error`. Shortly
            before a ``total_timeout``, ``group_timeout`` or ``batch_timeout`` the comparisons that
            are there are made into scores.

    Raises:
        RegistrationError: An option is wrong; the message names it.

    Examples:
        >>> from guerdon import pairwise
        >>> pairwise(
        ...     base_url="http://localhost:8000/v1",
        ...     model="Qwen/Qwen3-8B",
        ...     prompt="{prompt}\\nA: {completion_a}\\nB: {completion_b}\\nBetter: [[A]], [[B]], or [[C]] for a tie?",
        ... )
        <pairwise 'pairwise': http://localhost:8000/v1/chat/completions, timeout 30 s>
    """
    given = {**{option: value for option, value in locals().items() if option != "options"}, **options}
    name = name_of(name)
    wrong = f"reward function {name!r}: "
    if schedule not in ("circular", "all", "swiss"):
        raise RegistrationError(f"{wrong}schedule={schedule!r}: expected 'circular', 'all' or 'swiss'.")
    if score not in ("bradley_terry", "win_rate"):
        raise RegistrationError(f"{wrong}score={score!r}: expected 'bradley_terry' or 'win_rate'.")
    both_orders = flag(name, "both_orders", both_orders)
    if rounds is not None:
        if schedule != "swiss":
            raise RegistrationError(f"{wrong}rounds={rounds!r} is for schedule='swiss' alone.")
        if not 1 <= (integer(rounds) or 0) < 1 << 16:
            raise RegistrationError(f"{wrong}rounds={rounds!r}: expected a whole number from 1 to 65535.")
    comparisons = Comparisons(schedule, rounds, score, both_orders)
    if better is not None:
        judges = {"model": model, "prompt": prompt, "parse": parse, **options}
        odd = next((key for key, value in judges.items() if value is not None and key not in OF_SCORES), None)
        if odd is not None:
            raise RegistrationError(
                f"{wrong}{odd}= is for a judge. Give a function its own options by guerdon.reward: "
                f"pairwise(reward(better, {odd}=…))."
            )
        function = better if hasattr(type(better), "__guerdon_decorated__") else reward(better)
        if isinstance(function, HttpReward) and is_given(function, "pass_messages", True):
            raise RegistrationError(f"{wrong}{_ABOUT_TWO}")
        compares = member_spec(name, "comparison", function)
        policy = checked_policy(name, Options(name=name, **options), "group")
        return CompositeReward((pairwise, given), compared_by(name, compares, comparisons, policy))
    if model is None or prompt is None:
        raise RegistrationError(f"{wrong}expected a function that compares, or model= and prompt= of a judge.")
    _refuse_votes(name, options)
    if options.get("pass_messages"):
        raise RegistrationError(f"{wrong}{_ABOUT_TWO}")
    if parse is None:
        parse = parsers.regex(r"\[\[([ABC])\]\]", {"A": 1.0, "B": 0.0, "C": 0.5})
    asked = judge(model=model, prompt=prompt, parse=parse, name=name, **options)
    return CompositeReward((pairwise, given), compared(asked.spec, comparisons))


@partial(with_known_options, others=judge, values=(Server, Limit))
def rubric(
    criteria: Mapping[str, str],
    *,
    model: str,
    prompt: str = "Question:\n{prompt}\n\nAnswer:\n{completion}",
    weights: Mapping[str, float] | None = None,
    per_call: Literal["all", "one"] = "all",
    scale: tuple[float, float] = (0, 10),
    name: str = "rubric",
    **options: Any,
) -> Rubric:
    """Make a rubric: several criteria, each a column ``<name>/<criterion>`` of the result, with
    what the judge says about it in ``result.extra["<name>/<criterion>/reason"]``.

    An entry of a dispatcher's list that has several columns: trainers, weights, metrics and the
    command line see a reward function for each.

    Args:
        criteria: What each of them asks for, by name.
        model: As for `guerdon.judge`.
        prompt: What is judged, with the sample's columns. The criteria and the form of the answer
            follow it, so that the requests of a sample begin with the same text.
        weights: By criterion, all 1 by default; the dispatcher's weight of the rubric multiplies
            them.
        per_call: ``"all"`` criteria in one request; an answer that lacks one is an `error` for all.
            Or a request for ``"one"`` after the other, to the same endpoint, which has the text of
            the sample in its prefix cache; one that fails is an `error` for itself alone.
        scale: The lowest and the highest score; one beyond is an `error`.
        name: In metrics, files and messages; unique in a dispatcher.
        **options: All others of `guerdon.judge`, except ``parse`` and ``votes``.

    Raises:
        RegistrationError: An option is wrong; the message names it.

    Examples:
        >>> from guerdon import rubric
        >>> rubric(
        ...     {"correct": "The answer is right.", "clear": "A child understands it."},
        ...     base_url="http://localhost:8000/v1",
        ...     model="Qwen/Qwen3-8B",
        ... )
        <rubric 'rubric': rubric/correct, rubric/clear>
    """
    given = {**{option: value for option, value in locals().items() if option != "options"}, **options}
    name = name_of(name)
    wrong = f"reward function {name!r}: "
    texts = _criteria(name, criteria)
    if per_call not in ("all", "one"):
        raise RegistrationError(f"{wrong}per_call={per_call!r}: expected 'all' or 'one'.")
    non_empty_text(name, "prompt", prompt)
    by_criterion = weights if isinstance(weights, Mapping) else {}
    found = dict.fromkeys(texts, 1.0) if weights is None else {key: number(each) for key, each in by_criterion.items()}
    if found.keys() != texts.keys() or not all(math.isfinite(weight) for weight in found.values()):
        raise RegistrationError(f"{wrong}weights={weights!r}: expected a number for each criterion.")
    _refuse_votes(name, options)
    if "parse" in options:
        raise RegistrationError(
            f"{wrong}parse= is for guerdon.judge alone: a rubric reads the answers that it asks for."
        )
    given_ends: object = scale
    ends = [number(end) for end in given_ends] if isinstance(given_ends, (list, tuple)) else []
    if len(ends) != 2 or not -math.inf < ends[0] < ends[1] < math.inf:
        raise RegistrationError(f"{wrong}scale={scale!r}: expected the lowest and the highest score, (0, 10).")
    low, high = ends

    def judge_of(asked: Mapping[str, str]) -> HttpReward:
        lines = "".join(f"{'- ' if per_call == 'all' else ''}{key}: {text}\n" for key, text in asked.items())
        which = "each criterion" if per_call == "all" else "this criterion"
        form = ", ".join(
            f'{json.dumps(key, ensure_ascii=False)}: {{"reason": "<one sentence>", "score": <number>}}' for key in asked
        )
        rate = f"Rate the answer from {low:g} to {high:g} by {which}.\n{lines}Reply with JSON alone: {{{form}}}"
        question = f"{prompt}\n\n{rate.replace('{', '{{').replace('}', '}}')}"
        parse = parsers.rubric(list(asked), range=scale)
        return judge(model=model, prompt=question, parse=parse, name=name, **options)

    if per_call == "all":
        judges = [judge_of(texts)]
    else:
        judges = [judge_of({key: text}) for key, text in texts.items()]
    return Rubric((rubric, given), name, judges, {key: found[key] for key in texts})


def _criteria(name: str, given: object) -> dict[str, str]:
    texts = dict(given) if isinstance(given, Mapping) else {}
    lines = [each for pair in texts.items() for each in pair]
    if not all(isinstance(line, str) and line.strip() and line.isprintable() for line in lines):
        texts = {}
    if not 1 <= len(texts) <= _MOST_CRITERIA:
        raise RegistrationError(
            f"reward function {name!r}: criteria: expected a dict of 1 to {_MOST_CRITERIA} names and lines of text."
        )
    return texts


def _weights(name: str, reduce: object, weights: object, members: int) -> list[float]:
    if weights is None:
        return []
    wrong = f"reward function {name!r}: weights={weights!r}: "
    if reduce not in _WEIGHTED:
        raise RegistrationError(f"{wrong}reduce={reduce!r} has no use for them.")
    if not isinstance(weights, (list, tuple)) or len(weights) != members:
        raise RegistrationError(f"{wrong}expected one number a member, {members} in all.")
    found = [number(weight) for weight in weights]
    if not all(0 < weight < math.inf for weight in found):
        raise RegistrationError(f"{wrong}expected numbers above 0.")
    return found


def _refuse_votes(name: str, options: Mapping[str, Any]) -> None:
    if "votes" in options:
        raise RegistrationError(f"reward function {name!r}: votes= is for guerdon.judge alone.")
    if options.get("pure") is True:
        raise RegistrationError(f"reward function {name!r}: pure=True is for calls of a single request.")
    if options.get("cache") is not None:
        raise RegistrationError(
            f"reward function {name!r}: cache= is for guerdon.judge, guerdon.http_reward and guerdon.panel."
        )

"""Options that a public function or class doesn't have, and the calls that make the functions which
come with Guerdon, in messages."""

from __future__ import annotations

import inspect
import pickle
import re
from collections.abc import Callable
from typing import Any

import pytest

from guerdon import (
    Cache,
    Dispatcher,
    Journal,
    Limit,
    Ray,
    Recycle,
    RegistrationError,
    SandboxFusion,
    Server,
    Trace,
    Votes,
    cascade,
    code_reward,
    group_reward,
    http_reward,
    judge,
    pairwise,
    panel,
    reward,
    rewards,
    rubric,
)
from guerdon._functions.factory import Factory
from guerdon.errors import DataError

MISSPELT: list[tuple[Callable[..., object], str, str]] = [
    (Dispatcher, "weight", "weights"),
    (Journal, "column", "columns"),
    (Limit, "concurency", "concurrency"),
    (Ray, "adress", "address"),
    (Recycle, "call", "calls"),
    (SandboxFusion, "langage", "language"),
    (Trace, "pth", "path"),
    (cascade, "acept", "accept"),
    (code_reward, "timout", "timeout"),
    (group_reward, "on_fail", "on_failure"),
    (Cache, "sizes", "size"),
    (Server, "api_key_fil", "api_key_file"),
    (Votes, "min_agrement", "min_agreement"),
    (http_reward, "column", "columns"),
    (judge, "api_key_envv", "api_key_env"),
    (judge, "max_completion_tokens", "max_tokens"),
    (pairwise, "both_order", "both_orders"),
    (panel, "wieghts", "weights"),
    (reward, "time_out", "timeout"),
    (rewards.exact_match, "colum", "column"),
    (rewards.math_reward, "timeot", "timeout"),
    (rubric, "criterias", "criteria"),
]


@pytest.mark.parametrize(("maker", "misspelt", "meant"), MISSPELT, ids=[misspelt for _, misspelt, _ in MISSPELT])
def test_a_misspelt_option_is_refused_with_the_nearest_one(
    maker: Callable[..., Any], misspelt: str, meant: str
) -> None:
    with pytest.raises(RegistrationError) as refused:
        maker(**{misspelt: 1})
    assert str(refused.value) == f"{maker.__name__}() has no option {misspelt!r}; did you mean {meant!r}?"


@pytest.mark.parametrize(
    ("maker", "option", "value"),
    [
        (judge, "headers", "server=guerdon.Server(…, headers=…)"),
        (judge, "min_agreement", "votes=guerdon.Votes(…, min_agreement=…)"),
        (http_reward, "price", "server=guerdon.Server(…, price=…)"),
        (pairwise, "api_key_file", "server=guerdon.Server(…, api_key_file=…)"),
        (reward, "concurrency", "limit=guerdon.Limit(concurrency=…)"),
    ],
)
def test_an_option_of_a_value_is_refused_with_the_value(maker: Callable[..., object], option: str, value: str) -> None:
    with pytest.raises(RegistrationError, match=re.escape(f"has no option {option!r}: give it as {value}.")):
        maker(**{option: 1})


def test_an_option_unlike_all_others_is_refused() -> None:
    with pytest.raises(RegistrationError, match=r"^Limit\(\) has no option 'zzz'\.$"):
        Limit(zzz=1)  # type: ignore[call-arg]


@pytest.mark.parametrize("maker", [Cache, SandboxFusion, Server, Votes, http_reward, pairwise, panel, reward])
def test_all_but_the_first_option_are_given_by_name(maker: Callable[..., object]) -> None:
    first, *others = inspect.signature(maker).parameters.values()
    assert first.kind is first.POSITIONAL_OR_KEYWORD
    assert {option.kind for option in others} <= {first.KEYWORD_ONLY, first.VAR_KEYWORD}


def test_objects_with_known_options_are_pickled() -> None:
    assert pickle.loads(pickle.dumps(Limit(concurrency=3))) == Limit(concurrency=3)
    made = judge(base_url="http://127.0.0.1:1/v1", model="m", prompt="{completion}")
    assert repr(pickle.loads(pickle.dumps(made))) == repr(made)


def made(item: Any) -> Factory:
    factory: Factory = item.spec.factory
    return factory


def test_a_call_is_shown_with_what_is_not_usual() -> None:
    assert made(rewards.math_reward()).call(timeout=10.0) == "math_reward(timeout=10)"
    strict = made(rewards.math_reward("gold", strict=True, timeout=3))
    assert strict.call(timeout=10.0) == 'math_reward(column="gold", strict=True, timeout=10)'
    assert made(rewards.exact_match()).call(timeout=1.5) == "exact_match(timeout=1.5)"
    assert made(code_reward(isolation="none", timeout=3.0)).call() == 'code_reward(timeout=3, isolation="none")'
    within = made(rewards.cosine_length(rewards.squad_em("gold"))).call(timeout=1.0)
    assert within == 'cosine_length(correct=squad_em(column="gold"), timeout=1)'


@pytest.mark.parametrize(
    ("item", "column", "call"),
    [
        (lambda: rewards.math_reward(), "answer", 'math_reward(column="answer")'),
        (lambda: rewards.ifeval(arguments="given"), "ids", 'ifeval(column="ids")'),
        (lambda: code_reward(isolation="none"), "tests", 'code_reward(cases="tests")'),
        (lambda: code_reward(isolation="none", check="test"), "tests", 'code_reward(check="tests")'),
    ],
)
def test_a_column_that_is_missing_can_be_named(item: Any, column: str, call: str) -> None:
    function = item()
    for score in (Dispatcher([function]).score, function):
        with pytest.raises(DataError) as raised:
            score(completions=["a"], **{column: ["b"]})
        assert f"or name yours: {call}." in str(raised.value)
        assert "parameter a default" not in str(raised.value)
        assert "'completion'" not in str(raised.value)


def test_of_several_columns_only_a_similar_one_is_proposed() -> None:
    for there, call in ((("answers", "id"), 'exact_match(column="answers")'), (("a", "id"), 'exact_match(column="…")')):
        with pytest.raises(DataError) as raised:
            rewards.exact_match()(completions=["a"], **{name: ["b"] for name in there})
        assert str(raised.value).endswith(f"name yours: {call}.")
    # The column of the one that is given can't be named by the other.
    with pytest.raises(DataError) as raised:
        rewards.cosine_length(rewards.squad_em("gold"))(completions=["a"], answer=["b"])
    assert "name yours" not in str(raised.value)


def test_a_trainers_own_columns_are_proposed_for_misspelt_ones_alone() -> None:
    def typo(complettion: str) -> float:
        return 1.0

    def other(solution: str) -> float:
        return 1.0

    with pytest.raises(DataError, match="Did you mean 'completion'"):
        Dispatcher([reward(typo)]).score(completions=["a"])
    with pytest.raises(DataError, match="Add it to the dataset, or give the parameter a default"):
        Dispatcher([reward(other)]).score(completions=["a"])


def test_two_of_a_name_get_a_name_by_their_own_call() -> None:
    with pytest.raises(RegistrationError, match=r"another name: math_reward\(name=…\)"):
        Dispatcher([rewards.math_reward(), rewards.math_reward()])
    with pytest.raises(RegistrationError, match=r"another name: reward\(fn, name=…\)"):
        Dispatcher([rewards.exact_match(name="a"), reward(lambda text: 1.0, name="a")])


@pytest.mark.parametrize(
    ("factory", "call"),
    [
        (rewards.math_reward, "rewards.math_reward()"),
        (judge, "judge(base_url=…, model=…, prompt=…)"),
        (http_reward, "http_reward(url=…)"),
        (code_reward, "code_reward()"),
        (reward, "reward(function)"),
    ],
)
def test_factory_that_was_not_called_is_refused_with_the_call(factory: Callable[..., Any], call: str) -> None:
    for make in (lambda: Dispatcher([factory]), lambda: reward(factory)):
        with pytest.raises(RegistrationError, match=re.escape(f"call it, {call}")):
            make()

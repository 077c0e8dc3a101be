"""The dispatcher: what it refuses, what it gives, its columns."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
import pytest

from guerdon import (
    DataError,
    Dispatcher,
    RegistrationError,
    reward,
)
from tests.simple import answer_is, judge, length, rank, shared_dispatcher, trl_style

dispatcher = shared_dispatcher([length, answer_is, judge, rank, trl_style])


@pytest.mark.parametrize("method", ["score", "submit", "stream", "ascore", "ascore_one"])
def test_a_wrong_call_names_the_class_of_users(dispatcher: Dispatcher, method: str) -> None:
    with pytest.raises(TypeError, match=rf"^Dispatcher\.{method}\(\) takes 1 positional argument but 2 were given"):
        getattr(dispatcher, method)(["a"])


# --- registration


@pytest.mark.parametrize(
    ("functions", "words"),
    [
        ([], "empty"),
        ("model", "a list of reward functions"),
        (length, "a list of reward functions"),
        ([3], "3"),
        ([length, length], "two reward functions are called 'length'"),
        (
            [lambda prompts, completions: 1, lambda prompts, completions: 2],
            "two reward functions are called '<lambda>'",
        ),
        (["org/model"], "only reward models"),
    ],
)
def test_lists_that_cannot_work_are_refused(functions: Any, words: str) -> None:
    with pytest.raises(RegistrationError, match=words):
        Dispatcher(functions)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"weights": [1, 2]}, "2 weights for a list of 1"),
        ({"weights": [float("nan")]}, "finite"),
        ({"weights": 1}, "a list of numbers"),
        *(
            ({"weights": wrong}, "weights=.*expected a list of numbers")
            for wrong in (["a"], {0: 2.0}, {1.0}, "1", b"1", ["1"], [10**400])
        ),
        ({"workers": 0}, "workers=0"),
        ({"workers": 1.5}, "workers=1.5"),
        ({"workers": True}, "workers=True"),
        ({"workers": 10**20}, "expected at most 4096"),
        ({"num_generations": 0}, "num_generations=0"),
        ({"max_failure_rate": 1.5}, "max_failure_rate=1.5"),
        ({"max_failure_rate": float("nan")}, "max_failure_rate=nan"),
        ({"batch_timeout": 0}, "batch_timeout=0"),
        ({"batch_timeout": float("inf")}, "batch_timeout=inf"),
        *(({option: 10**400}, f"{option}=1000") for option in ("batch_timeout", "max_failure_rate")),
        ({"incomplete": "half"}, "incomplete='half'"),
    ],
)
def test_options_that_cannot_work_are_refused(options: Any, words: str) -> None:
    with pytest.raises(RegistrationError, match=words):
        Dispatcher([length], **options)


def test_a_dispatcher_or_its_columns_are_no_reward_functions() -> None:
    made = Dispatcher([length])
    for functions, message in (
        (made, "this is a Dispatcher already"),
        ([made], "one of the functions is a Dispatcher"),
        (made.reward_funcs, "belongs to a dispatcher already"),
    ):
        with pytest.raises(RegistrationError, match=message):
            Dispatcher(functions)  # type: ignore[arg-type]


def test_numpy_weights_are_weights() -> None:
    assert Dispatcher([length], weights=np.array([0.5])).reward_weights == [0.5]  # type: ignore[arg-type]
    assert Dispatcher([length]).reward_weights == [1.0]


# --- scoring


def test_wrong_names_for_the_texts_are_refused(dispatcher: Dispatcher) -> None:
    with pytest.raises(DataError, match=r"no argument completion=.*completions="):
        dispatcher.submit(completions=["a"], completion=["a"])


def test_a_group_function_needs_the_group_size() -> None:
    with Dispatcher([rank]) as made:
        with pytest.raises(DataError, match=r"'rank'.*num_generations="):
            made.submit(completions=["a", "b"])
        with pytest.raises(DataError, match="3 samples don't make whole groups"):
            made.submit(completions=["a", "b", "c"], num_generations=2)
    with Dispatcher([rank], num_generations=2) as made:
        assert made.score(completions=["a", "b"]).rewards.ravel().tolist() == [0.0, 1.0]


def test_reward_models_are_left_to_the_trainer() -> None:
    made = Dispatcher(["org/model", length], weights=[2, 1])
    assert made.reward_funcs[0] == "org/model"
    assert made.names == ("length",)
    assert made.reward_weights == [2.0, 1.0]
    with pytest.raises(DataError, match="org/model"):
        made.submit(completions=["a"])


def test_a_column_may_be_called_self() -> None:
    @reward(lane="thread")
    def count(completion: str, **row: object) -> float:
        return float(len(row))

    with Dispatcher([count]) as made:
        assert made.score(completions=["a"], self=[1]).rewards.item() == 1
        assert made.reward_funcs[0](completions=["a"], self=[1]) == [1.0]


# --- columns for a trainer


def test_reward_funcs_are_a_column_for_each_function(dispatcher: Dispatcher) -> None:
    columns = dispatcher.reward_funcs
    assert isinstance(columns, list)
    assert [column.__name__ for column in columns] == ["length", "answer_is", "judge", "rank", "trl_style"]
    assert all(one is other for one, other in zip(columns, dispatcher.reward_funcs, strict=True))
    assert all(callable(column) for column in columns)


def test_a_dispatcher_is_no_sequence(dispatcher: Dispatcher) -> None:
    assert not isinstance(dispatcher, (Sequence, Iterable))
    with pytest.raises(TypeError):
        list(dispatcher)  # type: ignore[call-overload]


def test_given_bare_it_says_what_to_do(dispatcher: Dispatcher) -> None:
    with pytest.raises(TypeError, match=r"pass dispatcher\.reward_funcs"):
        # how TRL asks for a function's name, when it is made
        getattr(dispatcher, "__name__", "its class")
    with pytest.raises(TypeError, match=r"pass dispatcher\.reward_funcs"):
        dispatcher(prompts=["p"], completions=["a"])

"""The decorators."""

from __future__ import annotations

import asyncio
import functools
import inspect
import pickle
from typing import Any

import pytest

from guerdon import RewardFunction, StatefulReward, group_reward, reward
from guerdon._functions.build import spec_of
from guerdon.errors import RegistrationError


@reward(timeout=2.0)
def correct(completion: str, answer: str = "42") -> float:
    """Returns 1 for the answer."""
    return float(completion == answer)


@reward
async def later(completion: str) -> float:
    return 1.0


@group_reward(name="others")
def unlike_others(completions: list[str], **columns: object) -> list[float]:
    return [1.0 / completions.count(completion) for completion in completions]


class Box:
    def __init__(self, word: str) -> None:
        self.word = word

    @reward(timeout=3)
    def has_word(self, completion: str) -> float:
        return float(self.word in completion)

    @staticmethod
    @reward
    def is_short(completion: str) -> float:
        return float(len(completion) < 5)


class Keyword(StatefulReward):
    def score(self, text: str) -> float:
        return float("a" in text)


def test_a_decorated_function_is_still_the_function() -> None:
    assert correct("42") == 1.0
    assert correct(completion="41", answer="41") == 1.0
    assert unlike_others(completions=["a", "a"]) == [0.5, 0.5]
    assert asyncio.run(later("x")) == 1.0
    assert (correct.__name__, correct.__doc__) == ("correct", "Returns 1 for the answer.")
    assert inspect.signature(correct) == inspect.signature(correct.__wrapped__)
    assert correct.__guerdon_target__ is correct.__wrapped__
    for function in correct, unlike_others:
        with pytest.raises(TypeError, match=r"a trainer called it with a whole batch: .*pass dispatcher\.reward_funcs"):
            function(prompts=["p"], completions=["a"], trainer_state=None)
    with pytest.raises(TypeError, match="missing 1 required positional argument"):
        correct()


def test_with_and_without_parentheses_and_as_a_call() -> None:
    assert reward(lambda text: 1.0, name="one").name == "one"
    assert (later.name, unlike_others.name) == ("later", "others")
    assert unlike_others.__name__ == "unlike_others"
    assert reward()(correct.__wrapped__).name == "correct"
    assert repr(correct) == "<reward function 'correct': sample, process lane, timeout 2 s>"


def test_unnamed_functions_get_a_name() -> None:
    class Scorer:
        def __call__(self, completion: str) -> float:
            return 1.0

    assert reward(Scorer()).__name__ == "Scorer"
    assert reward(functools.partial(correct.__wrapped__, answer="1")).__name__ == "correct"
    assert reward(Keyword(), name="keyword").name == "keyword"


def test_a_decorated_method_is_bound_like_a_method() -> None:
    box = Box("word")
    assert box.has_word("a word") == 1.0
    spec = spec_of(box.has_word)
    assert spec.policy.timeout == 3.0
    assert spec.wants.required == ("completion",)
    assert Box.is_short("abc") == Box("x").is_short("abc") == 1.0
    assert spec_of(Box.is_short).wants.required == ("completion",)


def test_options_stand_in_one_place() -> None:
    assert reward(correct.__wrapped__, timeout=5).spec.policy.timeout == 5.0
    assert correct.spec.policy.timeout == 2.0


@pytest.mark.parametrize(
    ("decorate", "problem"),
    [
        (lambda: reward(Keyword), "Did you mean an instance"),
        (lambda: group_reward(Keyword()), r"group_reward\(\) takes functions.*finish_group"),
        (lambda: reward(Keyword(), rowwise=True), "rowwise is for functions that take lists"),
        (lambda: reward(timeout=0)(lambda completion: 1.0), "'<lambda>': timeout=0"),
        (lambda: group_reward(unlike_others.__wrapped__, rowwise=True), r"group_reward\(\) has no option 'rowwise'"),
        (lambda: reward(correct, timeout=5), r"'correct' is decorated already.*correct.__wrapped__"),
        (lambda: spec_of(Box.has_word), "is an unbound method"),
    ],
)
def test_wrong_uses_of_the_decorators_are_refused(decorate: Any, problem: str) -> None:
    with pytest.raises(RegistrationError, match=problem):
        decorate()


@pytest.mark.parametrize("item", [correct, unlike_others, later])
def test_it_pickles_by_reference_where_it_can_be_found(item: RewardFunction[..., Any]) -> None:
    data = pickle.dumps(item)
    assert pickle.loads(data) is item
    assert len(data) < 100


def test_it_pickles_with_its_options_where_it_can_not_be_found() -> None:
    item = pickle.loads(pickle.dumps(reward(len, name="size", lane="thread", timeout=7)))
    assert item("abc") == 3
    assert (item.name, item.spec.lane, item.spec.policy.timeout) == ("size", "thread", 7.0)
    stateful = pickle.loads(pickle.dumps(reward(Keyword(), name="again")))
    assert stateful("abc") == 1.0

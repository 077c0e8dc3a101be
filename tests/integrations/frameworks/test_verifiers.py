"""Rewards of verifiers' tasks, called as they call them.

tests/frameworks/test_verifiers.py has the same with verifiers installed.
"""

from __future__ import annotations

import asyncio
import inspect
from types import SimpleNamespace
from typing import Any

import pytest

from guerdon import Dispatcher, reward
from guerdon.errors import GuerdonWarning, RewardFailureError
from guerdon.integrations import verifiers
from tests.integrations.frameworks.rewards import dispatcher


class Message:
    def __init__(self, role: str, content: str) -> None:
        self.role, self.content = role, content

    def model_dump(self, exclude_none: bool) -> dict[str, Any]:
        return {"role": self.role, "content": self.content}


class TaskData:
    model_fields = ("prompt", "label")

    def __init__(self, label: str) -> None:
        self.prompt, self.label = "2 + 2", label


def trace(text: str) -> Any:
    example, answer = Message("assistant", "an example"), Message("assistant", text)
    messages = [Message("user", "1 + 1"), example, Message("user", "2 + 2"), answer]
    return SimpleNamespace(messages=messages, assistant_messages=[answer], info={"turns": 1}, last_reply=text)


def call(function: Any, available: dict[str, Any]) -> Any:
    """Calls it by the names of its parameters, as verifiers' `invoke` does."""
    names = inspect.signature(function).parameters
    return asyncio.run(function(**{name: available[name] for name in names if name in available}))


def test_a_tasks_reward_raises_where_there_is_none() -> None:
    score = verifiers.reward_function(dispatcher())
    assert score.__name__ == "guerdon"
    assert call(score, {"task": TaskData("4"), "trace": trace("4"), "runtime": None}) == 1.0
    with pytest.warns(GuerdonWarning, match="its trace has an error"), pytest.raises(RewardFailureError):
        call(score, {"task": TaskData("4"), "trace": trace("bad")})
    chosen = verifiers.reward_function(dispatcher(), failure_value=0.0)
    with pytest.warns(GuerdonWarning, match="its reward becomes 0"):
        assert call(chosen, {"task": TaskData("4"), "trace": trace("bad")}) == 0.0


def test_tasks_return_their_results() -> None:
    """The completion begins with the first reply of the model, not with an example's."""

    def look(prompt: Any, completion: Any, label: str, trace_info: dict[str, Any]) -> float:
        assert [message["content"] for message in prompt] == ["1 + 1", "an example", "2 + 2"]
        assert completion == [{"role": "assistant", "content": "4"}]
        assert (label, trace_info) == ("4", {"turns": 1})
        return 1.0

    score = verifiers.reward_function(Dispatcher([reward(look, lane="thread")]), name="look")
    assert call(score, {"task": TaskData("4"), "trace": trace("4")}) == 1.0


def test_an_attribute_of_a_class_is_not_bound() -> None:
    class Task:
        score = verifiers.reward_function(dispatcher())

    assert list(inspect.signature(Task().score).parameters) == ["task", "trace"]

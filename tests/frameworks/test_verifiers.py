"""verifiers' own `Task.score`, with our reward as a method and as a plugged function."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Iterator
from types import ModuleType
from typing import Any

import pytest

pytest.importorskip("verifiers.v1", reason="verifiers is not installed: make test-frameworks")

import verifiers.v1 as vf
from verifiers.v1.configs.task import TaskConfig
from verifiers.v1.errors import TaskError
from verifiers.v1.graph import MessageNode
from verifiers.v1.trace import AgentInfo, Trace, TraceTask
from verifiers.v1.types import AssistantMessage, UserMessage

from guerdon.errors import GuerdonWarning
from guerdon.integrations.verifiers import reward_function
from tests.integrations.frameworks.rewards import dispatcher


class Data(vf.TaskData):
    label: str


MADE = dispatcher()


@pytest.fixture(scope="module", autouse=True)
def closed() -> Iterator[None]:
    yield
    MADE.close()


class Sum(vf.Task[Data]):
    score_it = vf.reward(reward_function(MADE, name="score_it"), weight=2.0)


class Plain(vf.Task[Data]):
    pass


def trace_of(data: Data, text: str) -> Any:
    nodes = [
        MessageNode(message=UserMessage(content="2 + 2")),
        MessageNode(message=AssistantMessage(content=text), parent=0, sampled=True),
    ]
    agent = AgentInfo.model_construct(config=None)
    return Trace.model_construct(task=TraceTask(type="Sum", data=data), agent=agent, nodes=nodes)


def test_a_method_of_a_task() -> None:
    data = Data(label="4", prompt="2 + 2")
    for text, reward in (("4", 2.0), ("5", 0.0)):
        trace = trace_of(data, text)
        asyncio.run(Sum(data).score(trace))
        assert trace.reward == reward
        assert list(trace.rewards) == ["score_it"]


def test_a_failure_is_an_error_of_the_trace_and_no_reward() -> None:
    data = Data(label="4", prompt="2 + 2")
    trace = trace_of(data, "bad")
    with pytest.warns(GuerdonWarning, match="its trace has an error"), pytest.raises(TaskError) as caught:
        asyncio.run(Sum(data).score(trace))
    assert trace.rewards == {"score_it": None}
    trace.record_error(caught.value)
    assert trace.has_error


def test_a_plugged_function(monkeypatch: pytest.MonkeyPatch) -> None:
    module = ModuleType("my_plugged_rewards")
    module.score = reward_function(dispatcher())  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "my_plugged_rewards", module)
    config = TaskConfig.model_validate({"rewards": {"sum": {"fn": "my_plugged_rewards:score", "weight": 3.0}}})
    data = Data(label="4", prompt="2 + 2")
    trace = trace_of(data, "4")
    asyncio.run(Plain(data, config).score(trace))
    assert (trace.reward, list(trace.rewards)) == (3.0, ["sum"])

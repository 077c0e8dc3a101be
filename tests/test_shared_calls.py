"""Identical calls of pure functions, on every lane: made once while they are in flight."""

from __future__ import annotations

import threading
import time
from typing import Any

import pytest

from guerdon import Dispatcher, RegistrationError, StatefulReward, Status, http_reward, judge, reward
from tests.clock import eventually, one_of_three
from tests.http.server import chat_completion, serving
from tests.simple import streamed

COMPLETIONS = ["a", "b"] * 8
# Calls have mostly joined an identical one by then; only their outcomes show it.
JOINED_S = 0.3


def test_identical_calls_in_workers_are_made_once(tmp_path: Any) -> None:
    @reward(pure=True)
    def counted(completion: str, folder: str, level: int) -> dict[str, Any]:
        import pathlib
        import time
        import uuid

        pathlib.Path(folder, uuid.uuid4().hex).touch()
        time.sleep(1.5)
        return {"score": float(completion == "a") + level, "seen": completion}

    levels = [index // 2 % 2 for index in range(16)]
    with Dispatcher([counted], workers=2) as dispatcher:
        result = dispatcher.score(completions=COMPLETIONS, num_generations=4, folder=[str(tmp_path)] * 16, level=levels)
    assert result.rewards.ravel().tolist() == [
        float(completion == "a") + level for completion, level in zip(COMPLETIONS, levels, strict=True)
    ]
    assert len(list(tmp_path.iterdir())) == 4
    assert result.timings["counted"]["shared"] == 12
    assert result.extra["counted/seen"] == COMPLETIONS


@pytest.mark.parametrize("lane", ["thread", "asyncio"])
def test_identical_calls_in_this_process_are_made_once(lane: str) -> None:
    one_of_three(lambda: _identical_calls_are_made_once(lane))


def _identical_calls_are_made_once(lane: str) -> None:
    calls = []
    held = threading.Event()

    def slow(completion: str) -> float:
        calls.append(completion)
        held.wait(60)
        return float(len(calls))

    async def slow_async(completion: str) -> float:
        import asyncio

        calls.append(completion)
        await asyncio.to_thread(held.wait, 60)
        return 1.0

    function = reward(slow if lane == "thread" else slow_async, name="slow", lane=lane, pure=True)
    with Dispatcher([function]) as dispatcher:
        first = dispatcher.submit(completions=["a"] * 3)
        second = dispatcher.submit(completions=["a"] * 3)
        eventually(lambda: bool(calls))
        time.sleep(JOINED_S)
        held.set()
        results = [first.result(), second.result()]
    assert calls == ["a"]
    assert all((result.status == Status.OK).all() for result in results)
    assert sum(result.timings["slow"]["shared"] for result in results) == 5


@pytest.mark.fault(
    "a batch is cancelled whose call identical ones of other batches wait for (`pure=True`)",
    sees="`cancelled` in that batch alone; one of the others makes the call, for all of them",
)
def test_waiting_sample_makes_the_call_after_the_leader_is_cancelled() -> None:
    one_of_three(_who_waits_for_a_cancelled_call_makes_it)


def _who_waits_for_a_cancelled_call_makes_it() -> None:
    calls, first_goes_on = [], threading.Event()

    def slow(completion: str) -> float:
        calls.append(completion)
        if len(calls) == 1:
            first_goes_on.wait(100)
        return float(len(calls))

    with Dispatcher([reward(slow, name="slow", lane="thread", pure=True)], max_failure_rate=1.0) as dispatcher:
        first = dispatcher.submit(completions=["a"])
        others = [dispatcher.submit(completions=["a"] * 2) for _ in range(2)]
        eventually(lambda: bool(calls))
        time.sleep(JOINED_S)
        first.cancel()
        results = [pending.result(timeout=100) for pending in others]
        first_goes_on.set()
        cancelled = first.result(timeout=100)
    assert cancelled.status.item() == Status.CANCELLED
    assert [result.rewards.ravel().tolist() for result in results] == [[2.0, 2.0]] * 2
    assert len(calls) == 2


@pytest.mark.fault(
    "the worker of a call dies that identical ones wait for (`pure=True`)",
    sees="the value of one more try, alone, for all of them",
)
def test_a_call_that_others_wait_for_outlives_its_worker(tmp_path: Any) -> None:
    @reward(pure=True)
    def dies_once(completion: str, folder: str) -> float:
        import os
        import pathlib
        import uuid

        pathlib.Path(folder, uuid.uuid4().hex).touch()
        if len(os.listdir(folder)) == 1:
            os._exit(1)
        return 1.0

    with Dispatcher([dies_once], workers=1) as dispatcher:
        result = dispatcher.score(completions=["a"] * 8, folder=[str(tmp_path)] * 8)
    assert result.rewards.ravel().tolist() == [1.0] * 8
    assert len(list(tmp_path.iterdir())) == 2


def test_impure_functions_are_called_for_each_sample() -> None:
    calls = []
    function = reward(lambda completion: float(calls.append(1) or 1), name="f", lane="thread")  # type: ignore[func-returns-value]
    with Dispatcher([function]) as dispatcher:
        dispatcher.score(completions=["a"] * 4)
    assert len(calls) == 4


def test_judges_and_services_have_the_option() -> None:
    asked = {"base_url": "http://localhost:1/v1", "model": "m", "prompt": "{completion}"}
    assert judge(**asked).spec.pure, "at temperature 0"
    assert not judge(**asked, pure=False).spec.pure
    assert not judge(**asked, temperature=0.7).spec.pure
    assert not judge(**asked, temperature=None).spec.pure
    assert not judge(**asked, body={"temperature": 0.5}).spec.pure
    assert judge(**asked, temperature=None, body={"temperature": 0}).spec.pure
    assert judge(**asked, temperature=0.7, pure=True).spec.pure
    assert not judge(**asked, votes=3, temperature=0.7).spec.pure
    assert not http_reward("http://localhost:1/").spec.pure
    assert http_reward("http://localhost:1/", pure=True).spec.pure


def test_the_same_question_is_asked_once() -> None:
    with serving(lambda path, body: chat_completion("7"), delay=1.5) as server:
        asked = judge(base_url=f"{server.url}/v1", model="m", prompt="{prompt}: {completion}", pure=True, name="asked")
        votes = judge(base_url=f"{server.url}/v1", model="other", prompt="{completion}", temperature=1, name="votes")
        with Dispatcher([asked, votes]) as dispatcher:
            result = dispatcher.score(prompts=["p"] * 8, completions=["a", "b"] * 4, num_generations=8)
            again = streamed(dispatcher, {"prompts": ["p"] * 4, "completions": ["a"] * 4}, num_generations=4)
    sent = [body["model"] for body in server.bodies]
    assert (sent.count("m"), sent.count("other")) == (3, 12)
    assert (result.rewards == 7).all()
    assert (again.rewards == 7).all()


def test_wrong_options_are_refused() -> None:
    class ShapedReward(StatefulReward):
        def score(self, completion: str) -> float:
            return 1.0

        def finish_group(self, scores: list[float | None], **columns: Any) -> list[float | None]:
            return scores

    with pytest.raises(RegistrationError, match="depends on its group"):
        reward(ShapedReward(), pure=True)
    with pytest.raises(RegistrationError, match="pure='yes': expected True or False"):
        reward(lambda completion: 1.0, name="f", pure="yes")  # type: ignore[call-overload]

"""AReaL's ``reward_fn``: called, pickled with each call to a process pool, and awaited.

tests/frameworks/test_areal.py has the same with AReaL installed.
"""

from __future__ import annotations

import asyncio
import multiprocessing
import os
import pickle
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from typing import Any

import pytest

from guerdon import Dispatcher, reward
from guerdon.errors import GuerdonWarning, RewardFailureError
from guerdon.integrations import areal
from tests.integrations.frameworks.rewards import dispatcher, meeting


def test_a_reward_and_its_columns() -> None:
    def look(prompt: str, completion: str, prompt_ids: list[int], completion_ids: list[int], answer: str) -> float:
        assert (prompt, completion, list(prompt_ids), list(completion_ids), answer) == ("2 + 2", "4", [1], [2, 3], "4")
        return 1.0

    function = areal.reward_function(Dispatcher([reward(look, lane="thread")]), eos_token="</s>")
    assert function("2 + 2", "4</s>", [1], [2, 3], answer="4", messages=[]) == 1.0


def test_a_failure_raises_or_has_the_chosen_value() -> None:
    with pytest.warns(GuerdonWarning, match="its trajectory is rejected"), pytest.raises(RewardFailureError):
        areal.reward_function(dispatcher())("2 + 2", "bad", [1], [2], label="4")
    with pytest.warns(GuerdonWarning, match="its reward becomes -1"):
        assert areal.reward_function(dispatcher(), failure_value=-1)("2 + 2", "bad", [1], [2], label="4") == -1.0


def test_awaited_calls_run_at_once() -> None:
    made = meeting()
    function = areal.async_reward_function(made)

    async def gather() -> list[float]:
        return await asyncio.gather(*(function("", "abc", [], []) for _ in range(4)))

    assert asyncio.run(gather()) == [3.0] * 4
    made.close()


def pid_and_engine(function: Any, text: str) -> tuple[int, int, float]:
    return os.getpid(), id(function), function("2 + 2", text, [1], [2], label="4")


def test_a_process_of_the_pool_has_one_engine_for_all_calls() -> None:
    """The pickle that comes with every call is made once, and becomes one object in a process."""
    function = areal.reward_function(dispatcher())
    # an engine here, which the child must not use
    assert function("2 + 2", "4", [1], [2], label="4") == 1.0
    assert pickle.loads(pickle.dumps(function)) is pickle.loads(pickle.dumps(function))
    with ProcessPoolExecutor(1, mp_context=multiprocessing.get_context("fork")) as pool:
        calls = [pool.submit(partial(pid_and_engine, function, text)) for text in ("4", "5", "4")]
        answers = [call.result() for call in calls]
    assert [value for _, _, value in answers] == [1.0, 0.0, 1.0]
    assert len({(pid, engine) for pid, engine, _ in answers}) == 1
    areal._restored.clear()

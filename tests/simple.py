"""Reward functions of several lanes and contracts, and dispatchers of them, for tests that need
some. Workers import this module."""

from __future__ import annotations

import asyncio
import functools
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import pytest

import guerdon
from guerdon import group_reward, reward


def shared_dispatcher(functions: Sequence[Any], **options: Any) -> Any:
    """A fixture: one dispatcher of the functions for all tests of a module."""

    @pytest.fixture(scope="module")
    def dispatcher() -> Iterator[guerdon.Dispatcher]:
        with guerdon.Dispatcher(functions, **options) as made:
            yield made

    return dispatcher


def streamed(dispatcher: guerdon.Dispatcher, *additions: dict[str, Any], **options: Any) -> guerdon.RewardBatch:
    """The result of an open batch to which columns are added, one `add` each."""
    stream = dispatcher.stream(**options)
    for columns in additions:
        stream.add(**columns)
    stream.finish()
    return stream.result(timeout=60)


def on_lane(function: Callable[..., Any], lane: str, decorate: Any = reward, **options: Any) -> Any:
    """The function on a lane, as a coroutine function where that is a loop."""

    @functools.wraps(function)
    async def awaits(*arguments: Any, **columns: Any) -> Any:
        await asyncio.sleep(0)
        return function(*arguments, **columns)

    return decorate(awaits if lane == "asyncio" else function, lane=lane, **options)


@reward
def length(text: str) -> float:
    return float(len(text))


@reward(lane="thread")
def answer_is(completion: str, answer: str) -> float | None:
    if answer == "bad":
        raise ValueError("bad answer")
    return None if answer == "none" else float(completion == answer)


@reward
async def judge(prompt: str, completion: str) -> float:
    await asyncio.sleep(0.05)
    return float(len(prompt + completion))


@group_reward
def rank(completions: list[str], **columns: Any) -> list[float]:
    return [float(i) for i in range(len(completions))]


def trl_style(prompts: list[str], completions: list[str], **kwargs: Any) -> list[float]:
    return [float(len(completions))] * len(completions)

"""Reward functions of several lanes and contracts, for tests that need some."""

from __future__ import annotations

import asyncio
import functools
from collections.abc import Callable
from typing import Any

from guerdon import group_reward, reward


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

"""Reward functions of the asynchronous trainer's tests. Workers import this: nothing heavy."""

from __future__ import annotations

import asyncio
import math
import threading
import time
from typing import Any

from guerdon import Limit, StatefulReward, group_reward, reward

TOGETHER = 9
meeting = threading.Barrier(TOGETHER)  # of functions on the thread lane, in the tests' process


@reward
def length(text: str) -> float:
    return float(len(text))


@reward(name="letters")
async def letters(text: str, answer: str) -> float:
    return float(text.count(answer))


@reward
def fails_on_x(text: str) -> float:
    if "x" in text:
        raise ValueError("an x")
    return float(len(text))


@reward
def not_a_number(text: str) -> float:
    return math.inf if "x" in text else float(len(text))


@reward
def always_fails(text: str) -> float:
    raise ValueError("never")


@reward(lane="thread", limit=Limit(concurrency=TOGETHER), timeout=60)
def meets(text: str) -> float:
    """Comes back once as many calls are under way as there are groups."""
    meeting.wait(40)
    return float(len(text))


@reward(timeout=60)
async def slow_on_x(text: str) -> float:
    if "x" in text:
        await asyncio.sleep(1.0)
    return float(len(text))


@group_reward
def rank(completions: list[Any], **columns: Any) -> list[float]:
    texts = [completion[-1]["content"] for completion in completions]
    return [float(sorted(texts).index(text)) for text in texts]


class Best(StatefulReward):
    """1 for the best of its group, 0 for the others."""

    def score(self, text: str) -> float:
        return float(len(text))

    def finish_group(self, scores: list[float | None], **columns: Any) -> list[float | None]:
        best = max(score for score in scores if score is not None)
        return [None if score is None else float(score == best) for score in scores]


def plain(prompts: list[Any], completions: list[Any], **columns: Any) -> list[float]:
    return [float(len(completion[-1]["content"])) for completion in completions]


class Game:
    """An environment whose rewards come four at a time only; some raise, some are no number."""

    together = threading.Barrier(4)

    def reset(self, **row: Any) -> None:
        self.answer = row["answer"]

    def get_reward(self) -> float:
        Game.together.wait(40)
        if self.answer == "?":
            raise ValueError("no answer")
        return math.inf if self.answer == "u" else float("aeiou".index(self.answer))


class Quiz(Game):
    """The same, awaited."""

    async def get_reward(self) -> float:
        return await asyncio.to_thread(super().get_reward)


class Diary:
    """An environment that keeps what it was reset with, in a list that it goes on with. It can't be
    copied."""

    def __init__(self) -> None:
        self.seen: list[str] = []
        self.lock = threading.Lock()

    def reset(self, **row: Any) -> None:
        self.seen.append(row["prompt"][-1]["content"])


@reward(timeout=60)
async def latest(prompt: Any, environment: Any) -> float:
    """1 if the environment is as its completion left it, and nobody reset it since."""
    await asyncio.sleep(0.2)
    return float(environment.seen[-1] == prompt[-1]["content"])


@reward(timeout=600)
async def never(text: str) -> float:
    await asyncio.sleep(600)
    return 0.0


def begin_a_message(buffer: Any) -> None:
    """In a process of its own: more than a pipe takes, so that a kill leaves half of it."""
    buffer.put(b"x" * 10_000_000)
    time.sleep(600)

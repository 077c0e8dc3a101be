"""Reward functions of the thread and asyncio lanes that the cluster tests let agents run."""

from __future__ import annotations

import asyncio
import os
import threading
import time
from collections.abc import Callable
from typing import Any

import guerdon


@guerdon.reward(lane="thread", node="any")
def threaded(completion: str) -> float | None:
    if len(completion) % 5 == 4:
        raise ValueError("four")
    return None if completion.endswith("?") else float(len(completion))


@guerdon.reward(node="any")
async def on_loop(prompt: str, completion: str, extra: object) -> float | str:
    await asyncio.sleep(0)
    if len(completion) % 7 == 6:
        raise ValueError("six")
    if len(completion) % 7 == 5:
        return "no number"
    return float(len(prompt) + len(completion)) + float(extra is not None)


@guerdon.group_reward(lane="thread", node="any")
def thread_ranks(completions: list[str], **columns: Any) -> list[float]:
    return [float(position) + len(columns) for position, _ in enumerate(completions)]


@guerdon.group_reward(node="any")
async def loop_ranks(completions: list[str]) -> list[float]:
    return [float(position) for position, _ in enumerate(completions)]


@guerdon.reward(lane="thread", batch_size=16, node="any")
def thread_gathered(completions: list[str]) -> list[float]:
    return [2.0 * len(completion) for completion in completions]


@guerdon.reward(batch_size=16, node="any")
async def loop_gathered(completions: list[str]) -> list[float]:
    return [3.0 * len(completion) for completion in completions]


class _Prefixed(guerdon.StatefulReward):
    """Has something to set up, and shapes its groups."""

    def setup(self) -> None:
        self.offset = 10.0

    def score(self, completion: str) -> float | None:
        return None if completion.endswith("?") else self.offset + len(completion)

    def finish_group(self, scores: list[float | None]) -> list[float | None]:
        best = max((score for score in scores if score is not None), default=0.0)
        return [None if score is None else score / best for score in scores]


prefixed = guerdon.reward(_Prefixed(), name="prefixed", lane="thread", node="any")


class _LoopPrefixed(guerdon.StatefulReward):
    async def setup(self) -> None:
        await asyncio.sleep(0)
        self.offset = 20.0

    async def score(self, completion: str) -> float:
        return self.offset + len(completion)


loop_prefixed = guerdon.reward(_LoopPrefixed(), name="loop_prefixed", node="any")


@guerdon.reward(lane="thread", node="any")
def recorded(completion: str, log_extra: Callable[..., None], log_metric: Callable[..., None]) -> dict[str, object]:
    log_metric("characters", len(completion))
    return {"score": 1.0, "seen": len(completion)}


@guerdon.reward(node="any")
async def loop_recorded(completion: str) -> dict[str, object]:
    return {"score": 1.0, "seen_on_loop": len(completion)}


@guerdon.reward(lane="thread", timeout=2.0, node="any")
def sometimes_hangs(completion: str) -> float:
    if completion == "hang":
        time.sleep(6)
    return 1.0


@guerdon.reward(timeout=2.0, grace=0.1, node="any")
async def ignores_its_end(completion: str) -> float:
    end = time.monotonic() + 6
    while completion == "hang" and time.monotonic() < end:
        try:
            await asyncio.sleep(0.05)
        except asyncio.CancelledError:
            continue
    return 1.0


@guerdon.reward(lane="thread", node="any")
def slow(completion: str) -> float:
    time.sleep(0.02)
    return float(len(completion))


@guerdon.reward(node="any")
async def slow_on_loop(completion: str) -> float:
    await asyncio.sleep(0.05)
    return float(len(completion))


@guerdon.reward(lane="thread", node="any")
def process_id(completion: str) -> float:
    time.sleep(0.01)
    return float(os.getpid())


@guerdon.reward(node="any")
async def loop_process_id(completion: str) -> float:
    await asyncio.sleep(0.01)
    return float(os.getpid())


@guerdon.reward(lane="thread", node="any")
def waits_for_leave(completion: str) -> float:
    leave.wait(200)
    return 1.0


@guerdon.reward(node="any")
async def awaits_leave(completion: str) -> float:
    while True:
        await asyncio.sleep(0.01)
        if leave.is_set():
            return 1.0


leave = threading.Event()


class Unreadable:
    """It can be pickled, and what comes of that can't be read, at once or ever."""

    def __init__(self, hangs: bool = False) -> None:
        self.hangs = hangs

    def __reduce__(self) -> tuple[Any, ...]:
        return _refuse, (self.hangs,)


def _refuse(hangs: bool) -> None:
    if hangs:
        time.sleep(6)
    raise LookupError("not on this machine")


@guerdon.reward(lane="thread", timeout=0.5, node="any")
def threaded_extra(completion: str, extra: object) -> float:
    return 1.0


@guerdon.reward(node="any")
async def loop_extra(completion: str, extra: object) -> float:
    return 1.0


@guerdon.group_reward(node="any")
async def loop_group_extra(completions: list[str], extra: list[object]) -> list[float]:
    return [1.0] * len(completions)

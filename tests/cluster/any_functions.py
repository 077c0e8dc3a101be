"""Reward functions of the thread and asyncio lanes that the cluster tests let agents run."""

from __future__ import annotations

import asyncio
import threading
import time
from typing import Any

import guerdon


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

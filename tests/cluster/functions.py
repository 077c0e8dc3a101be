"""Reward functions that the cluster tests send to agents."""

from __future__ import annotations

import asyncio
import os
import threading
import time
from typing import Any

import guerdon


class NoSetup(guerdon.StatefulReward):
    def setup(self) -> None:
        raise RuntimeError("no model here")

    def score(self, completion: str) -> float:
        return 1.0


@guerdon.reward(timeout=6.0)
def sometimes_hangs(completion: str) -> float:
    if completion == "hang":
        time.sleep(60)
    return 1.0


@guerdon.reward
def sometimes_dies(completion: str) -> float:
    if completion == "die":
        os._exit(3)
    return float(len(completion))


@guerdon.reward
def slow(completion: str) -> float:
    time.sleep(0.02)
    return float(len(completion))


@guerdon.reward
def printing(completion: str) -> float:
    print(f"scoring {completion}")
    return 1.0


# On threads and loops of nodes.


@guerdon.reward(lane="thread", timeout=2.0, node="any")
def hangs_in_thread(completion: str) -> float:
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
def slow_in_thread(completion: str) -> float:
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

"""Functions that tests measure and check in workers.

A worker that loads a function from a module of tests imports pytest too: 250 ms of processor time.
"""

from __future__ import annotations

import asyncio
import os
import threading
import time
from typing import Any

from guerdon import StatefulReward, group_reward, reward


def spins(completion: str) -> float:
    end = time.perf_counter() + 0.01
    while time.perf_counter() < end:
        pass
    return 1.0


def sleeps(completion: str) -> float:
    time.sleep(0.01)
    return 1.0


async def awaits(completion: str) -> float:
    await asyncio.sleep(0.01)
    return 1.0


KNOWN: dict[str, float] = {}


async def remembers(completion: str) -> float:
    if completion not in KNOWN:
        KNOWN[completion] = await awaits(completion)
    return KNOWN[completion]


async def blocks(completion: str) -> float:
    return spins(completion)


async def waits_and_blocks(completion: str) -> float:
    return sleeps(completion)


class LoadedReward(StatefulReward):
    def setup(self) -> None:
        self.table = bytearray(60_000_000)

    def score(self, completion: str) -> float:
        return float(len(self.table))


@group_reward
def ranks(completions: list[str]) -> list[float]:
    time.sleep(0.002)
    return [float(len(each)) for each in completions]


def of_a_batch(completions: list[str], **columns: object) -> list[float]:
    time.sleep(0.002)
    return [1.0] * len(completions)


RUNNING: list[Any] = []


@reward
def sound(completion: Any) -> float:
    return float(int(completion) % 7)


@reward
def by_the_clock(completion: Any) -> float:
    return float(time.time() // 86400)


@reward(lane="thread")
def shared_state(completion: Any) -> float:
    RUNNING.append(threading.get_ident())
    time.sleep(0.002)
    others = len(RUNNING)
    RUNNING.pop()
    return float(others)


def sound_batch(completions: list[Any], **columns: Any) -> list[float]:
    return [float(int(completion) % 7) for completion in completions]


def empties(completions: list[Any], **columns: Any) -> list[float]:
    values = [float(int(completion)) for completion in completions]
    completions.clear()
    return values


@reward
def of_texts(text: str) -> float:
    return float(len(text))


@group_reward
def sizes(completions: list[str]) -> list[float]:
    return [float(len(completions))] * len(completions)


@reward
def exact(completion: str, answer: str) -> float:
    return float(completion == answer)


client = threading.Lock()  # can't be pickled, as a server's client


@reward
async def asks(completion: str, answer: str) -> float:
    with client:
        return float(completion == answer)


@reward(retries=3)
def fragile(completion: str) -> float:
    if completion == "hang":
        time.sleep(60)
    if completion == "crash":
        os._exit(3)
    if completion == "raise":
        raise ValueError("cannot read it")
    return 1.0


def plain(completions: list[str], answer: list[str], **columns: Any) -> list[float]:
    if "hang" in completions:
        time.sleep(60)
    return [float(completion == right) for completion, right in zip(completions, answer, strict=True)]


@reward(lane="thread")
def hash_of(completion: str) -> float:
    return float(hash(completion) % 1000)

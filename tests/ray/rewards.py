"""Reward functions that agents run: importable on each node."""

from __future__ import annotations

import asyncio
import os
import signal
import time
from pathlib import Path

import psutil

from guerdon import StatefulReward, reward


def double(completion: str) -> float:
    return 2.0 * float(completion)


double_reward = reward(double)


def act(completion: str, seconds: float, notes: str) -> float:
    """Does what `completion` says; a number is doubled.

    Args:
        completion: "exit" or "kill agent"; x's are counted.
        seconds: How long a number takes, twenty times as long on a slow node.
        notes: A folder for a line for each call that began, or "".
    """
    if notes:
        with open(Path(notes) / "runs", "a") as file:
            file.write(completion + "\n")
    if completion.startswith("x"):
        return float(len(completion))
    if completion == "exit":
        os._exit(3)
    if completion == "kill agent":
        for parent in psutil.Process().parents():
            if _is_agent(parent):
                os.kill(parent.pid, signal.SIGKILL)
        time.sleep(60)
    time.sleep(seconds * (20 if os.environ.get("SLOW_NODE") else 1))
    return 2.0 * float(completion)


async def act_on_loop(completion: str, seconds: float) -> float:
    """A number is doubled, and takes so long."""
    await asyncio.sleep(seconds)
    return 2.0 * float(completion)


def ranks(completions: list[str]) -> list[float]:
    order = sorted(completions, key=float)
    return [float(order.index(completion)) for completion in completions]


def where(completion: str) -> float:
    """The process id of the agent that it runs for."""
    time.sleep(float(completion) if "." in completion else 0.0)
    return float(next((one.pid for one in psutil.Process().parents() if _is_agent(one)), 0))


def _is_agent(process: psutil.Process) -> bool:
    return "ray::AgentActor" in " ".join(process.cmdline())


def process(completion: str) -> float:
    time.sleep(float(completion))
    return float(os.getpid())


async def process_of_loop(completion: str) -> float:
    await asyncio.sleep(float(completion))
    return float(os.getpid())


class BadSetup(StatefulReward):
    """Its model is missing on every node."""

    def setup(self) -> None:
        raise FileNotFoundError("/models/judge.bin")

    def score(self, completion: str) -> float:
        return 0.0


class GoodSetup(StatefulReward):
    def setup(self) -> None:
        self.factor = 2.0

    def score(self, completion: str) -> float:
        return self.factor * float(completion)

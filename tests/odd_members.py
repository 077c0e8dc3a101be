"""Members of composites on any lane, whose completions are orders."""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from guerdon import RetryAfter, StatefulReward, reward

LANES = ("process", "thread", "asyncio", "stateful")
# Lets calls on threads of this process go that hang: nothing else ends them.
LET_GO = threading.Event()


@pytest.fixture(autouse=True)
def let_go() -> Iterator[None]:
    LET_GO.clear()
    yield
    LET_GO.set()


def act(completion: str) -> Any:
    """Obeys the completion, except to hang."""
    what, _, marker = completion.partition(":")
    match what:
        case "fail":
            raise ValueError("no good")
        case "abstain":
            return None
        case "busy":
            if not os.path.exists(marker):
                Path(marker).touch()
                raise RetryAfter(0.05)
            return 6.0
        case "crash":
            os._exit(3)
        case "fields":
            return {"score": 6.0, "length": len(completion)}
        case _:
            return float(what)


def in_turn(completion: str) -> Any:
    if completion == "hang":
        LET_GO.wait(100)
    return act(completion)


async def at_once(completion: str) -> Any:
    if completion == "hang":
        await asyncio.sleep(100)
    return act(completion)


class LoadedReward(StatefulReward):
    def setup(self) -> None:
        self.ready = True

    def score(self, completion: str) -> Any:
        assert self.ready
        return in_turn(completion)


def steady(completion: str) -> float:
    return 4.0


def made(lane: str, name: str = "odd", **options: Any) -> Any:
    options = {"name": name, "timeout": 1.0, "grace": 0.2, **options}
    match lane:
        case "asyncio":
            return reward(at_once, **options)
        case "stateful":
            return reward(LoadedReward(), **options)
        case _:
            return reward(in_turn, lane=lane, **options)


def four() -> Any:
    return reward(steady, lane="thread", name="four")

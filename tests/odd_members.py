"""Members of composites on any lane, whose completions are orders."""

from __future__ import annotations

import asyncio
import os
import re
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from guerdon import RetryAfter, RewardBatch, StatefulReward, Status, reward

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


def made(lane: str, name: str = "odd", kinds: Any = (in_turn, at_once, LoadedReward), **options: Any) -> Any:
    """A member on a lane, of `kinds`: a function, a coroutine function, a stateful reward."""
    options = {"name": name, "timeout": 1.0, "grace": 0.2, **options}
    plain, awaits, stateful = kinds
    match lane:
        case "asyncio":
            return reward(awaits, **options)
        case "stateful":
            return reward(stateful(), **options)
        case _:
            return reward(plain, lane=lane, **options)


def four() -> Any:
    return reward(steady, lane="thread", name="four")


def check_end(result: RewardBatch, sample: int, function: str, expected: float | str | Status) -> None:
    """Checks a cell: a reward, the pattern of an error's reason, or another status."""
    column = result.functions.index(function)
    failures = [one for one in result.failures() if (one.sample, one.function) == (sample, function)]
    reason = failures[0].reason if failures else ""
    status, value = result.status[sample, 0, column], result.rewards[sample, 0, column]
    if isinstance(expected, float):
        assert (status, value) == (Status.OK, expected), (function, sample, reason)
    elif isinstance(expected, str):
        assert status == Status.ERROR, (function, sample)
        assert re.search(expected, reason), (function, sample, reason)
    else:
        assert status == expected, (function, sample)

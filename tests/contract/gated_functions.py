"""Six functions, on every lane, each but the first behind the one before it; what each gives stands
in the data."""

from __future__ import annotations

import asyncio
import time
from typing import Any

from guerdon import Limit, StatefulReward, http_reward, reward
from tests.contract.scripts import Cell, aact, act

LONG = 60.0

GIVEN: dict[str, object] = {"none": None, "text": "a text"}


def given(cell: Cell) -> Any:
    """What the call gives: a number, None, or what is no reward."""
    return GIVEN[cell.gives] if cell.gives in GIVEN else float(cell.gives)


@reward(timeout=LONG, retries=1)
def worker(completion: str, worker_cell: Cell) -> object:
    act(worker_cell, time.sleep)
    return given(worker_cell)


@reward(lane="thread", timeout=LONG, retries=2, limit=Limit(concurrency=3), run_if={"worker": ">= 1"}, otherwise=2)
def threaded(completion: str, threaded_cell: Cell) -> object:
    act(threaded_cell, time.sleep)
    return given(threaded_cell)


@reward(timeout=LONG, retries=1, run_if={"threaded": "!= 1", "worker": "< 3"})
async def awaited(completion: str, awaited_cell: Cell) -> object:
    await aact(awaited_cell)
    return given(awaited_cell)


def service(url: str) -> Any:
    return http_reward(
        f"{url}/score", name="served", columns=["served_cell"], retries=0, run_if={"awaited": "> 0"}, otherwise=-1
    )


class ShapedReward(StatefulReward):
    """A number of the group's that exist is added to each."""

    def score(self, completion: str, shaped_cell: Cell) -> Any:
        act(shaped_cell, time.sleep)
        return given(shaped_cell)

    def finish_group(self, scores: list[float | None], **columns: Any) -> list[float | None]:
        there = sum(score is not None for score in scores)
        return [None if score is None else score + there for score in scores]


shaped = reward(ShapedReward(), name="shaped", timeout=LONG, run_if={"served": ["<= 1", ">= -1"]})


async def _gathered(completions: list[str], gathered_cell: list[Cell]) -> list[object]:
    # Each sample of a call on several has its own cell's value; only delays are planned.
    await asyncio.sleep(max(cell.delay for cell in gathered_cell))
    for cell in gathered_cell:
        await aact(cell._replace(delay=0.0))
    return [given(cell) for cell in gathered_cell]


gathered = reward(_gathered, name="gathered", batch_size=4, timeout=LONG, run_if={"shaped": "> 1"})

"""Reward functions of the chaos soak, one for each way of being called on each lane. Workers import
this module.

What a function gives depends on its arguments alone (`expected` says it), and each call counts
itself in a file that all of them share: so whatever becomes of a worker, it is known which calls
ran how often, and what they must have given.

Workers import this module: it needs nothing but the standard library and `guerdon`'s base class of
stateful rewards.
"""

from __future__ import annotations

import asyncio
import math
import mmap
import os
import time
from typing import Any, NamedTuple

from guerdon import StatefulReward

OK, ABSTAINED, ERROR = 0, 1, 3
# Numbers of the functions: their rows in the file of counts.
PLAIN, ODD, GROUPED, WHOLE, STATEFUL, THREADED, THREADED_GROUP, AWAITED = range(8)
NAMES = ["plain", "odd", "grouped", "whole", "Stateful", "threaded", "threaded_group", "awaited"]
# Which of them cover one sample a call, a group, the batch.
GROUPS, BATCHES = {GROUPED, THREADED_GROUP}, {WHOLE}
PROCESS = {PLAIN, ODD, GROUPED, WHOLE, STATEFUL}


class Job(NamedTuple):
    """What a sample's calls need to know.

    Attributes:
        number: Of the sample; no two of the same count file have the same.
        cost: Seconds that a call of it takes, on one of two functions by turns.
        counts: The file of counts, a byte for each (function, number).
        capacity: Numbers in that file.
    """

    number: int
    cost: float
    counts: str
    capacity: int


def value_of(function: int, number: int) -> float:
    """A number with all bits in use, the same in every process."""
    return math.sin(function * 12.9898 + number * 78.233) * 43758.5453


def expected(function: int, number: int) -> tuple[int, float]:
    """Status and value of a cell that nothing happened to."""
    if function == ODD and number % 7 == 3:
        return ABSTAINED, math.nan
    if function == ODD and number % 31 == 5:
        return ERROR, math.nan
    if function == STATEFUL:
        return OK, 2 * value_of(function, number)
    return OK, value_of(function, number)


_open: dict[str, mmap.mmap] = {}


def count(function: int, job: Job) -> None:
    """One more start of a call. No two processes run the same call at a time, so none writes this
    byte beside us."""
    page = _open.get(job.counts)
    if page is None:
        with open(job.counts, "r+b") as file:
            page = _open[job.counts] = mmap.mmap(file.fileno(), 0)
    place = function * job.capacity + job.number
    page[place] = min(page[place] + 1, 255)


def plain(completion: str, job: Job) -> float:
    count(PLAIN, job)
    spend(job, PLAIN)
    return value_of(PLAIN, job.number)


def odd(completion: str, job: Job) -> Any:
    """Records something, abstains and raises by turns."""
    count(ODD, job)
    spend(job, ODD)
    status, value = expected(ODD, job.number)
    if status == ERROR:
        raise ValueError(f"as planned: {job.number}")
    return None if status == ABSTAINED else {"score": value, "number": job.number}


def grouped(completions: list[str], job: list[Job]) -> list[float]:
    count(GROUPED, job[0])
    spend(job[0], GROUPED)
    return [value_of(GROUPED, one.number) for one in job]


def whole(prompts: list[str], completions: list[str], job: list[Job], **columns: Any) -> list[float]:
    """TRL's batch contract: one call a batch, in a worker of its own."""
    count(WHOLE, job[0])
    return [value_of(WHOLE, one.number) for one in job]


class Stateful(StatefulReward):
    """Has state of its worker's, and finishes its groups."""

    def setup(self) -> None:
        self.home = os.getpid()

    def score(self, completion: str, job: Job) -> float:
        assert self.home == os.getpid(), "setup() ran elsewhere"
        count(STATEFUL, job)
        spend(job, STATEFUL)
        return value_of(STATEFUL, job.number)

    def finish_group(self, scores: list[float | None], job: list[Job]) -> list[float | None]:
        for score, one in zip(scores, job, strict=True):
            assert score is None or score == value_of(STATEFUL, one.number), "a score of another sample"
        return [None if score is None else 2 * score for score in scores]


def threaded(completion: str, job: Job) -> float:
    count(THREADED, job)
    return value_of(THREADED, job.number)


def threaded_group(completions: list[str], job: list[Job]) -> list[float]:
    count(THREADED_GROUP, job[0])
    return [value_of(THREADED_GROUP, one.number) for one in job]


async def awaited(completion: str, job: Job) -> float:
    count(AWAITED, job)
    await asyncio.sleep(job.cost if job.number % 2 else 0)
    return value_of(AWAITED, job.number)


def spend(job: Job, function: int) -> None:
    """Takes the time that the sample costs, if this function is the one whose turn it is: waiting,
    or computing."""
    if not job.cost or job.number % 2 != function % 2:
        return
    if job.number % 3:
        time.sleep(job.cost)
        return
    until = time.monotonic() + job.cost
    while time.monotonic() < until:
        pass


def close_counts() -> None:
    """Lets go of the files of counts that this process opened."""
    while _open:
        _open.popitem()[1].close()

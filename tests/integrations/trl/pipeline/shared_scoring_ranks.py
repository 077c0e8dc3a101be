"""Rows of three ranks that rank 0 scores for, and a batch of theirs as a trainer begins it."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

pytest.importorskip("trl")

from guerdon import Dispatcher, group_reward, reward
from guerdon.integrations.trl.pipeline.rank_offers import RankColumns, exchange_offers
from guerdon.integrations.trl.pipeline.shared_scoring import SharedScoring

RANKS, ROWS, SIZE = 3, 4, 2
STATE = SimpleNamespace(global_step=3)


@reward
async def matches(completion: str, answer: str, log_extra: Any, log_metric: Any) -> dict[str, Any]:
    log_extra("seen", [completion])
    log_metric("length", float(len(completion)))
    if completion == "broken":
        raise ValueError("no such thing")
    return {"score": float(completion.endswith(answer)), "answer": answer}


@group_reward(lane="asyncio")
async def place(completions: list[str]) -> list[float]:
    return [float(index) for index in range(len(completions))]


def texts(rank: int) -> list[str]:
    return [f"{rank}{row}{'abcd'[row]}" for row in range(ROWS)]


def ids(rank: int) -> list[list[int]]:
    return [[rank, row] for row in range(ROWS)]


ANSWERS = ["a", "x", "c", "x"]
MINE = {"answer": ANSWERS, "unasked": [object()] * ROWS}


def make(dispatchers: list[Dispatcher], rank: int, arguments: Any = None) -> SharedScoring:
    """Makes the scoring of one batch as a trainer does; each rank has a dispatcher, as its
    own process would."""
    columns = RankColumns(MINE, ["p"] * ROWS, STATE)
    reasons, names = exchange_offers(columns.offer(dispatchers, [None] * len(dispatchers)))
    assert reasons == (None,) * len(dispatchers)
    given = {"trainer_state": STATE, **(arguments or {})}
    return SharedScoring(dispatchers, rank, RANKS, ROWS, SIZE, given, columns.send(names))

"""What three ranks have that rank 0 scores for, and how a trainer begins a batch of theirs."""

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
    """What rank 0 scores of one batch, as a trainer makes it; each rank has a dispatcher, as its
    own process would."""
    columns = RankColumns(MINE, ["p"] * ROWS, STATE)
    reasons, names = exchange_offers(columns.offer(dispatchers, [None] * len(dispatchers)))
    assert reasons == (None,) * len(dispatchers)
    given = {"trainer_state": STATE, **(arguments or {})}
    return SharedScoring(dispatchers, rank, RANKS, ROWS, SIZE, given, columns.send(names))

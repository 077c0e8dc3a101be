"""Rows exchanged between ranks so that groups are whole; ranks are threads."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pytest

pytest.importorskip("trl")

from guerdon.integrations.trl.pipeline import rank_exchange


@pytest.mark.parametrize(
    ("ranks", "rows", "size"),
    [(2, 6, 4), (3, 4, 6), (4, 3, 4), (4, 2, 8), (8, 1, 4), (3, 8, 6), (2, 4, 4), (5, 8, 10), (4, 6, 8)],
)
def test_groups_are_whole_where_they_begin(ranks: int, rows: int, size: int, monkeypatch: pytest.MonkeyPatch) -> None:
    meeting = threading.Barrier(ranks, timeout=60)
    brought: dict[int, list[Any]] = {}
    mine = threading.local()

    def gather(values: list[Any]) -> list[Any]:
        meeting.wait()
        brought[mine.rank] = values
        meeting.wait()
        return [value for rank in range(ranks) for value in brought[rank]]

    monkeypatch.setattr(rank_exchange, "gather_object", gather)

    def one(rank: int) -> tuple[list[int], list[int]]:
        mine.rank = rank
        exchange = rank_exchange.RankExchange(rank, ranks, rows, size)
        own = list(range(rank * rows, (rank + 1) * rows))
        columns = exchange.columns({"row": own, "text": [f"text {row}" for row in own]})
        assert columns["text"] == [f"text {row}" for row in columns["row"]]
        assert len(columns["row"]) == exchange.scored
        values = exchange.values(np.array(columns["row"], dtype=np.float32).reshape(-1, 1) * 2)
        assert values.shape == (rows, 1)
        return columns["row"], values.ravel().astype(int).tolist()

    with ThreadPoolExecutor(ranks) as pool:
        outcomes = list(pool.map(one, range(ranks)))
    scored = [row for rows_, _ in outcomes for row in rows_]
    assert scored == list(range(ranks * rows))  # each once, in order
    for rank, (taken, values) in enumerate(outcomes):
        assert len(taken) % size == 0
        assert all(row % size == 0 for row in taken[:1])  # whole groups
        assert values == [2 * row for row in range(rank * rows, (rank + 1) * rows)]

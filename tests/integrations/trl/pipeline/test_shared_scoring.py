"""Rank 0 scores for all ranks; ranks are threads."""

from __future__ import annotations

import threading
from typing import Any

import pytest

pytest.importorskip("trl")

from guerdon import ClosedError, Dispatcher, reward
from guerdon.integrations.trl.pipeline import rank_offers, shared_scoring
from guerdon.integrations.trl.pipeline.rank_offers import RankColumns, exchange_offers
from guerdon.integrations.trl.pipeline.shared_scoring import SharedScoring
from guerdon.results.status import Status
from tests.integrations.trl.pipeline.rank_threads import RankThreads
from tests.integrations.trl.pipeline.shared_scoring_ranks import (
    ANSWERS,
    RANKS,
    ROWS,
    SIZE,
    STATE,
    ids,
    make,
    matches,
    place,
    texts,
)


@pytest.fixture
def ranks(monkeypatch: pytest.MonkeyPatch) -> RankThreads:
    return RankThreads(RANKS, monkeypatch, rank_offers, shared_scoring)


@pytest.mark.parametrize("early", [[], [0, 5, 11], list(range(RANKS * ROWS))], ids=["none", "some", "all"])
def test_each_rank_gets_the_results_of_its_own_rows(early: list[int], ranks: RankThreads) -> None:
    every = [text for rank in range(RANKS) for text in texts(rank)]
    every[6] = "broken"  # row 2 of rank 1

    def one(rank: int) -> Any:
        with Dispatcher([matches, place], num_generations=SIZE) as dispatcher:
            shared = make([dispatcher], rank)
            if rank == 0:
                for row in early:
                    shared.add([row], [every[row]], [ids(row // ROWS)[row % ROWS]])
            first = rank * ROWS
            error = shared.begin_rest(None, every[first : first + ROWS], ids(rank))
            assert error is None
            result = shared.result(dispatcher)
            return shared.early, result, bool(dispatcher.stats())

    for rank, (begun, result, scored) in enumerate(ranks.run(one)):
        assert begun == sum(row // ROWS == rank for row in early)
        assert scored == (rank == 0)  # the engines of the others were never started
        mine = every[rank * ROWS : (rank + 1) * ROWS]
        values = [float(text.endswith(answer)) for text, answer in zip(mine, ANSWERS, strict=True)]
        rewards = result.rewards.reshape(ROWS, 2).tolist()
        assert [row[1] for row in rewards] == [0.0, 1.0, 0.0, 1.0]
        broken = [row for row, text in enumerate(mine) if text == "broken"]
        assert [(one.sample, one.function) for one in result.failures()] == [(row, "matches") for row in broken]
        assert [row[0] for place, row in enumerate(rewards) if place not in broken] == [
            value for place, value in enumerate(values) if place not in broken
        ]
        assert (result.status.reshape(ROWS, 2)[broken, 0] == Status.ERROR).all()
        # A call that failed recorded nothing.
        assert result.extra["seen"] == [None if text == "broken" else text for text in mine]
        assert result.extra["matches/answer"] == [
            None if row in broken else answer for row, answer in enumerate(ANSWERS)
        ]
        assert result.metrics["length"] == [float(len(text)) for text in mine if text != "broken"]
        assert len(result) == ROWS
        assert result.attempts.shape == result.rewards.shape == (ROWS // SIZE, SIZE, 2)
        assert "RewardBatch: 2 prompts x 2 completions x 2 functions" in repr(result)


def test_groups_come_in_the_order_in_which_they_complete_on_each_rank(ranks: RankThreads) -> None:
    may_end = [threading.Event() for _ in range(RANKS * ROWS // SIZE)]

    @reward(name="patient")
    async def patient(text: str) -> float:
        import asyncio

        group = (int(text[0]) * ROWS + int(text[1])) // SIZE
        for _ in range(12_000):
            if may_end[group].is_set():
                break
            await asyncio.sleep(0.005)
        return float(group)

    for group in (1, 2, 5):  # the second of rank 0, the first of rank 1, the second of rank 2
        may_end[group].set()

    def one(rank: int) -> Any:
        with Dispatcher([patient], num_generations=SIZE) as dispatcher:
            shared = make([dispatcher], rank)
            assert shared.begin_rest(None, texts(rank), ids(rank)) is None
            shared.expect(1)
            first = list(shared.order)
            if rank == 0:
                assert shared.open_groups() == 3
                for event in may_end:
                    event.set()
            shared.expect(2)
            shared.result(dispatcher)
            cells = [shared.cells(dispatcher, group)[0].ravel().tolist() for group in shared.order]
            return first, shared.order, cells, shared.open_groups()

    found = ranks.run(one)
    assert [first for first, *_ in found] == [[1], [0], [1]]
    assert [order for _, order, *_ in found] == [[1, 0], [0, 1], [1, 0]]
    assert [cells for _, _, cells, _ in found] == [
        [[1.0, 1.0], [0.0, 0.0]],
        [[2.0, 2.0], [3.0, 3.0]],
        [[5.0, 5.0], [4.0, 4.0]],
    ]
    assert [left for *_, left in found] == [0, 0, 0]


@pytest.mark.fault(
    "rank 0 scored other completions for another rank than TRL hands on there",
    sees="the rewards of those that TRL trains on: the batch is scored anew",
)
def test_rows_that_differ_from_the_scored_ones_are_scored_again_with_all_others(ranks: RankThreads) -> None:
    def one(rank: int) -> Any:
        with Dispatcher([matches]) as dispatcher:
            shared = make([dispatcher], rank)
            if rank == 0:
                shared.add([0, 9], [texts(0)[0], "something else"], [ids(0)[0], ids(2)[1]])
            assert shared.begin_rest(None, texts(rank), ids(rank)) is None
            return shared.early, shared.result(dispatcher).extra["seen"]

    for rank, (early, seen) in enumerate(ranks.run(one)):
        assert early == 0
        assert seen == texts(rank)


@pytest.mark.parametrize("where", range(RANKS))
def test_after_an_error_on_any_rank_nothing_begins(where: int, ranks: RankThreads) -> None:
    def one(rank: int) -> Any:
        with Dispatcher([matches]) as dispatcher:
            shared = make([dispatcher], rank)
            error = ValueError("here") if rank == where else None
            return shared.begin_rest(error, texts(rank), ids(rank)), bool(dispatcher.stats())

    assert [(str(error), begun) for error, begun in ranks.run(one)] == [
        ("here" if rank == where else "None", False) for rank in range(RANKS)
    ]


@pytest.mark.fault(
    "the dispatcher that scores for all ranks is closed on rank 0 in mid-batch",
    sees="`ClosedError` on every rank; none waits for another",
)
def test_a_dispatcher_that_is_closed_on_rank_0_is_an_error_on_all(ranks: RankThreads) -> None:
    @reward(name="endless")
    async def endless(text: str) -> float:
        import asyncio

        await asyncio.sleep(600)
        return 1.0

    def one(rank: int) -> Any:
        with Dispatcher([endless]) as dispatcher:
            shared = make([dispatcher], rank)
            assert shared.begin_rest(None, texts(rank), ids(rank)) is None
            if rank == 0:
                dispatcher.close()
            errors = []
            for ask in (lambda: shared.expect(1), lambda: shared.result(dispatcher)):
                with pytest.raises(ClosedError, match="was closed while this batch was scored") as caught:
                    ask()
                errors.append(str(caught.value))
            return errors

    assert len({tuple(errors) for errors in ranks.run(one)}) == 1


def test_a_group_on_two_ranks_is_scored_once_and_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    rows, size = 3, 2
    ranks = RankThreads(2, monkeypatch, rank_offers, shared_scoring)

    def one(rank: int) -> Any:
        with Dispatcher([place], num_generations=size) as dispatcher:
            columns = RankColumns({}, ["p"] * rows, STATE)
            _, names = exchange_offers(columns.offer([dispatcher], [None]))
            assert names == frozenset()
            shared = SharedScoring([dispatcher], rank, 2, rows, size, {}, columns.send(names))
            assert shared.begin_rest(None, texts(rank)[:rows], ids(rank)[:rows]) is None
            result = shared.result(dispatcher)
            return result.rewards.ravel().tolist(), result.rewards.shape

    assert ranks.run(one) == [([0.0, 1.0, 0.0], (3, 1, 1)), ([1.0, 0.0, 1.0], (3, 1, 1))]

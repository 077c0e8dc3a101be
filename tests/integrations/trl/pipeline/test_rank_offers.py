"""Columns that go to rank 0, and dispatchers that stay on their rank; ranks are threads."""

from __future__ import annotations

import threading
from types import SimpleNamespace
from typing import Any

import pytest

pytest.importorskip("trl")

from guerdon import Dispatcher, GuerdonWarning, reward
from guerdon.integrations.trl.pipeline import first_rank, rank_offers, shared_scoring
from guerdon.integrations.trl.pipeline.first_rank import FirstRank
from guerdon.integrations.trl.pipeline.rank_offers import RankColumns, exchange_offers
from guerdon.integrations.trl.pipeline.shared_scoring import SharedScoring
from tests.integrations.trl.pipeline.rank_threads import RankThreads
from tests.integrations.trl.pipeline.shared_scoring_ranks import (
    ANSWERS,
    MINE,
    RANKS,
    ROWS,
    SIZE,
    STATE,
    ids,
    matches,
    texts,
)


@pytest.fixture
def ranks(monkeypatch: pytest.MonkeyPatch) -> RankThreads:
    return RankThreads(RANKS, monkeypatch, rank_offers, shared_scoring)


def test_only_columns_that_are_asked_for_travel(ranks: RankThreads) -> None:
    @reward(name="asks")
    async def asks(prompt: str, text: str, answer: str) -> float:
        return 1.0

    def one(rank: int) -> Any:
        with Dispatcher([asks]) as first, Dispatcher([matches]) as second:
            prompts = [[{"role": "user", "content": f"{'a long question ' * 10}{rank}"}] for _ in range(ROWS)]
            columns = RankColumns(MINE, prompts, STATE)
            offer = columns.offer([first, second, second], [None, None, "of a reason"])
            reasons, names = exchange_offers(offer)
            return reasons, names, columns.send(names), columns._packed["prompts"]

    for rank, (reasons, names, brought, packed) in enumerate(ranks.run(one)):
        assert reasons == (None, None, "of a reason")
        assert names == {"prompts", "answer"}
        assert len(packed[0]) == 1  # the same prompt once
        if rank:
            assert brought is None
        else:
            assert brought["answer"] == ANSWERS * RANKS
            assert [prompt[0]["content"][-1] for prompt in brought["prompts"]] == ["0"] * 4 + ["1"] * 4 + ["2"] * 4


@pytest.mark.fault(
    "the columns of one rank can't be sent to rank 0, or are not those of the others",
    sees="the rewards; each rank scores its own rows, and a warning says why",
)
@pytest.mark.parametrize(
    ("columns", "rows", "reason"),
    [
        ({"answer": ["a"] * ROWS, "more": [1] * ROWS}, ROWS, "the columns of rank 1 are not those of rank 0.*'more'"),
        ({"answer": [threading.Lock()] * ROWS}, ROWS, "the column 'answer' can't be sent.*TypeError"),
        ({}, ROWS, "asks for the column 'answer'"),
        ({"answer": ["a"] * 2}, 2, r"ranks have different numbers of rows \(4, 2, 4\)"),
    ],
    ids=["other columns", "live objects", "a missing column", "fewer rows"],
)
def test_a_rank_that_differs_keeps_a_dispatcher_on_all(
    columns: dict[str, Any], rows: int, reason: str, ranks: RankThreads
) -> None:
    @reward(name="asks")
    async def asks(text: str, answer: str, **row: Any) -> float:
        return 1.0

    def one(rank: int) -> Any:
        mine, count = (columns, rows) if rank == 1 else ({"answer": ["a"] * ROWS}, ROWS)
        with Dispatcher([asks]) as dispatcher:
            return exchange_offers(RankColumns(mine, ["p"] * count, STATE).offer([dispatcher], [None]))

    found = ranks.run(one)
    assert found[0] == found[1] == found[2]
    (reported,), names = found[0]
    assert names == frozenset()
    with pytest.raises(ValueError, match=reason):
        raise ValueError(reported)


class Unreadable:
    """Can be pickled, and not read again."""

    def __reduce__(self) -> Any:
        return int, ("no number",)


def test_columns_that_rank_0_cannot_read_are_an_error_on_all(ranks: RankThreads) -> None:
    @reward(name="asks")
    async def asks(text: str, answer: Any) -> float:
        return 1.0

    def one(rank: int) -> Any:
        with Dispatcher([asks]) as dispatcher:
            columns = RankColumns({"answer": [Unreadable()] * ROWS}, ["p"] * ROWS, STATE)
            _, names = exchange_offers(columns.offer([dispatcher], [None]))
            shared = SharedScoring([dispatcher], rank, RANKS, ROWS, SIZE, {}, columns.send(names))
            return shared.begin_rest(None, texts(rank), ids(rank))  # on which all ranks agree then

    assert [type(error) for error in ranks.run(one)] == [ValueError, type(None), type(None)]


def test_a_rank_whose_rows_cannot_be_read_does_not_raise_alone(ranks: RankThreads) -> None:
    def one(rank: int) -> Any:
        with Dispatcher([matches]) as dispatcher:
            accelerator = SimpleNamespace(is_main_process=rank == 0, process_index=rank, num_processes=RANKS)
            trainer = SimpleNamespace(dispatchers=(dispatcher,), accelerator=accelerator, state=STATE)
            first_rank = FirstRank(trainer)
            rows: list[dict[str, Any]] = [{"prompt": "p", "answer": "a"} for _ in range(ROWS)]
            if rank == 2:
                del rows[-1]["answer"]
            return first_rank.scoring(trainer, ["p"] * ROWS, rows)

    with pytest.warns(GuerdonWarning, match=r"'matches', because the rows of a rank can't be read \(KeyError"):
        assert ranks.run(one) == [None] * RANKS


@pytest.mark.fault(
    "warnings are errors, and rank 0 has one to give between two collectives",
    sees="the warning as an error on every rank; none waits for another",
)
@pytest.mark.filterwarnings("error::guerdon.GuerdonWarning")
def test_a_warning_that_is_an_error_is_raised_on_all(ranks: RankThreads, monkeypatch: pytest.MonkeyPatch) -> None:
    agreed: list[Exception | None] = []

    def together(trainer: Any, error: Exception | None) -> None:
        every = ranks.gather_object([error])
        agreed.extend(every)
        if any(every):
            raise next(one for one in every if one is not None)

    monkeypatch.setattr(first_rank, "raise_together", together)

    @reward(name="asks")
    async def asks(text: str, missing: str) -> float:
        return 1.0

    def one(rank: int) -> Any:
        with Dispatcher([matches]) as goes, Dispatcher([asks]) as stays:
            accelerator = SimpleNamespace(is_main_process=rank == 0, process_index=rank, num_processes=RANKS)
            trainer = SimpleNamespace(dispatchers=(goes, stays), accelerator=accelerator, state=STATE)
            trainer._group_size, trainer._common = SIZE, {}
            decisions = FirstRank(trainer)
            rows = [{"prompt": "p", "answer": answer} for answer in ANSWERS]
            with pytest.raises(GuerdonWarning, match=r"'asks'.*asks for the column 'missing'"):
                decisions.scoring(trainer, ["p"] * ROWS, rows)
            again = decisions.scoring(trainer, ["p"] * ROWS, rows)
            assert again is not None
            return again.dispatchers == (goes,)

    assert ranks.run(one) == [True] * RANKS

    assert [type(error) for error in agreed] == [GuerdonWarning, type(None), type(None)] * RANKS

"""A value that can't travel between ranks is an error on all of them; ranks are threads."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

pytest.importorskip("trl")

from guerdon import DataError, Dispatcher, GuerdonError
from guerdon.errors import ToolError
from guerdon.integrations.trl.pipeline import rank_offers, shared_scoring
from guerdon.integrations.trl.pipeline.shared_scoring import SharedScoring
from guerdon.results.status import Status
from tests.integrations.trl.pipeline.rank_threads import RankThreads
from tests.integrations.trl.pipeline.shared_scoring_ranks import RANKS, ids, make, matches, texts


@pytest.fixture
def ranks(monkeypatch: pytest.MonkeyPatch) -> RankThreads:
    return RankThreads(RANKS, monkeypatch, rank_offers, shared_scoring)


class Unsendable:
    """No process can be sent one."""

    def __reduce__(self) -> Any:
        raise OSError("a live handle")

    def __repr__(self) -> str:
        return "<unsendable>"


class Unspeakable:
    """Has no `repr`, by which ranks compare completions."""

    def __repr__(self) -> str:
        raise OSError("gone")


@pytest.mark.fault(
    "a completion of one rank can't be sent to rank 0, or not be read",
    sees="an error on all ranks that says why; none waits for another",
)
@pytest.mark.parametrize(
    ("odd", "rank_of_error", "reason"),
    [
        (Unsendable(), 0, r"the completions of rank 1 can't be sent to another process \(OSError: a live handle"),
        (Unspeakable(), 1, "gone"),
    ],
    ids=["unsendable", "unspeakable"],
)
def test_a_completion_that_cannot_travel_is_an_error_on_all(
    odd: Any, rank_of_error: int, reason: str, ranks: RankThreads
) -> None:
    def one(rank: int) -> Any:
        with Dispatcher([matches]) as dispatcher:
            shared = make([dispatcher], rank)
            completions: list[Any] = [*texts(rank)]
            if rank == 1:
                completions[2] = odd
            return shared.begin_rest(None, completions, ids(rank))  # on which all ranks agree then

    found = ranks.run(one)
    assert [error is not None for error in found] == [rank == rank_of_error for rank in range(RANKS)]
    with pytest.raises((DataError, OSError), match=reason):
        raise found[rank_of_error]


def test_results_that_cannot_be_sent_are_an_error_on_all(ranks: RankThreads, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shared_scoring, "slices", lambda *_: [Unsendable() for _ in range(RANKS)])

    def one(rank: int) -> Any:
        with Dispatcher([matches]) as dispatcher:
            shared = make([dispatcher], rank)
            assert shared.begin_rest(None, texts(rank), ids(rank)) is None
            with pytest.raises(DataError, match="what rank 0 scored can't be sent"):
                shared.result(dispatcher)

    ranks.run(one)


def test_incomparable_rows_are_an_error_on_all_ranks(ranks: RankThreads, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: Any) -> Any:
        raise OSError("gone")

    monkeypatch.setattr(SharedScoring, "_compare", fail)

    def one(rank: int) -> Any:
        with Dispatcher([matches]) as dispatcher:
            return str(make([dispatcher], rank).begin_rest(None, texts(rank), ids(rank)))

    assert ranks.run(one) == ["gone"] * RANKS


@pytest.mark.parametrize(
    ("make_error", "on_rank_0"),
    [(lambda: ToolError("too slow", Status.TIMEOUT), GuerdonError), (lambda: OSError("too slow"), OSError)],
)
def test_an_error_that_asks_for_more_than_a_message_travels(
    make_error: Callable[[], Exception],
    on_rank_0: type[Exception],
    ranks: RankThreads,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def fail(*_: Any) -> Any:
        # Made here: one that outlives the test holds the batch by its traceback.
        raise make_error()

    monkeypatch.setattr(shared_scoring, "slices", fail)

    def one(rank: int) -> Any:
        with Dispatcher([matches]) as dispatcher:
            shared = make([dispatcher], rank)
            assert shared.begin_rest(None, texts(rank), ids(rank)) is None
            with pytest.raises(on_rank_0 if rank == 0 else GuerdonError, match="too slow"):
                shared.result(dispatcher)

    ranks.run(one)

"""Columns, as any trainer may call them (column-1, column-2)."""

from __future__ import annotations

import asyncio
import os
import pickle
import signal
import threading
import time
import warnings
import weakref
from collections.abc import Iterator
from typing import Any, Literal

import pytest

from guerdon import ClosedError, DataError, Dispatcher, GuerdonWarning, RewardFailureError, group_reward, reward
from guerdon._batch.trainer.batches import MOST_OPEN
from guerdon._batch.trainer.column import RewardColumn
from guerdon._batch.trainer.context import MOST_EXTRA, TrainerContext, TrainerMemory

# These call columns by themselves, as no trainer does whose treatment of failures is known.
pytestmark = pytest.mark.filterwarnings("ignore:.*is not known to leave out samples")

# what ran in this process: (function, samples); written by the functions below
calls: list[tuple[str, int]] = []


@reward(lane="thread")
def length(completion: str) -> float:
    calls.append(("length", 1))
    return float(len(completion))


@reward(lane="thread")
def picky(completion: str) -> float | None:
    if completion.startswith("fail"):
        raise ValueError(completion)
    return None if completion == "none" else 1.0


@reward(lane="thread")
def tidy(completion: str) -> float:
    time.sleep(0.05)
    return 2.0


@pytest.fixture
def dispatcher() -> Iterator[Dispatcher]:
    calls.clear()
    with Dispatcher([length, picky, tidy]) as made:
        yield made


class Lists(list[str]):
    """A list that can be watched."""


def batch(*completions: str) -> dict[str, Any]:
    texts = Lists(completions)
    return {"prompts": ["p"] * len(texts), "completions": texts, "completion_ids": [[1]] * len(texts)}


@pytest.mark.parametrize("order", [(0, 1, 2), (2, 1, 0), (1, 0, 2)])
def test_columns_may_be_called_in_any_order(dispatcher: Dispatcher, order: tuple[int, ...]) -> None:
    given = batch("a", "bb")
    values = {index: dispatcher.reward_funcs[index](**given) for index in order}
    assert values == {0: [1.0, 2.0], 1: [1.0, 1.0], 2: [2.0, 2.0]}
    assert calls == [("length", 1)] * 2


def test_a_sample_that_cannot_be_scored_is_none_in_every_column(dispatcher: Dispatcher) -> None:
    given = batch("a", "fail", "none")
    assert [column(**given) for column in dispatcher.reward_funcs] == [
        [1.0, None, 4.0],
        [1.0, None, None],
        [2.0, None, 2.0],
    ]


def test_partial_keep_leaves_what_is_there() -> None:
    with Dispatcher([length, picky], incomplete="sum") as made:
        given = batch("a", "fail")
        assert [column(**given) for column in made.reward_funcs] == [[1.0, 4.0], [1.0, None]]


def test_other_lists_are_another_batch(dispatcher: Dispatcher) -> None:
    first, second = batch("a"), batch("bb")
    assert dispatcher.reward_funcs[0](**first) == [1.0]
    assert dispatcher.reward_funcs[0](**second) == [2.0]
    assert dispatcher.reward_funcs[1](**second) == [1.0]
    assert dispatcher.reward_funcs[1](**first) == [1.0]
    assert len(calls) == 2


def test_open_lists_are_held_and_collected_ones_are_not(dispatcher: Dispatcher) -> None:
    given = batch("a")
    gone = weakref.ref(given["completions"])
    columns = dispatcher.reward_funcs
    columns[0](**given)
    columns[1](**given)
    keep = dict(given)
    del given
    keep.pop("completions")
    assert gone() is not None
    columns[2](**{**keep, "completions": gone()})
    assert gone() is None


def test_lists_refilled_in_place_are_a_new_batch(dispatcher: Dispatcher) -> None:
    given = batch("a", "b")
    for _ in range(3):
        assert [column(**given)[0] for column in dispatcher.reward_funcs] == [
            float(len(given["completions"][0])),
            1.0,
            2.0,
        ]
        given["completions"][0] += "x"
    assert len(calls) == 6


def test_attributes_set_on_a_column_stay(dispatcher: Dispatcher) -> None:
    """Nobody has the column between these lines."""
    own = dispatcher.reward_funcs[0].__name__
    dispatcher.reward_funcs[0].__name__ = "renamed"
    dispatcher.reward_funcs[0].note = 1
    first, second = dispatcher.reward_funcs[:2]
    assert (first.__name__, first.note) == ("renamed", 1)
    assert not hasattr(second, "note")
    assert dispatcher.names[0] == own


def test_a_list_without_a_name_is_the_completions(dispatcher: Dispatcher) -> None:
    """ms-swift calls ``reward_func(completions, **columns)``, TRL with names alone."""
    texts = ["a", "bb"]
    columns = dispatcher.reward_funcs
    assert columns[0](texts, answer=["x", "y"]) == [1.0, 2.0]
    assert columns[0](["p", "p"], texts) == [1.0, 2.0]
    assert columns[0](["p", "p"], completions=texts) == [1.0, 2.0]
    assert columns[0](["p", "p"], texts, [[1], [2]]) == [1.0, 2.0]
    with pytest.raises(TypeError, match="got completions twice"):
        columns[0](["p"], texts, completions=texts)
    with pytest.raises(TypeError, match=r"got 4 lists: name the others"):
        columns[0](["p"], texts, [[1]], ["x"])


def test_the_class_of_a_column_has_the_name_of_the_function(dispatcher: Dispatcher) -> None:
    assert [type(column).__name__ for column in dispatcher.reward_funcs] == ["length", "picky", "tidy"]
    assert type(dispatcher.reward_funcs[0]) is type(dispatcher.reward_funcs[0])
    assert all(isinstance(column, RewardColumn) for column in dispatcher.reward_funcs)
    assert [pickle.loads(pickle.dumps(column)).__name__ for column in dispatcher.reward_funcs[:1]] == ["length"]


def test_a_column_called_again_starts_a_new_batch(dispatcher: Dispatcher) -> None:
    given = batch("a")
    assert dispatcher.reward_funcs[0](**given) == [1.0]
    given["completions"][0] = "abc"
    assert dispatcher.reward_funcs[0](**given) == [3.0]
    assert dispatcher.reward_funcs[1](**given) == [1.0]
    assert len(calls) == 2


def test_columns_may_be_called_from_many_threads_for_several_batches(dispatcher: Dispatcher) -> None:
    batches = [batch(*["x" * (index + 1)] * 4) for index in range(6)]
    got: dict[tuple[int, int], list[float | None]] = {}

    def call(index: int, column: int) -> None:
        got[index, column] = dispatcher.reward_funcs[column](**batches[index])

    threads = [threading.Thread(target=call, args=(i, c)) for i in range(6) for c in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
    assert got == {
        (index, column): [[index + 1.0] * 4, [1.0] * 4, [2.0] * 4][column] for index in range(6) for column in range(3)
    }
    assert len(calls) == 24


def test_at_most_64_batches_stay_open(dispatcher: Dispatcher) -> None:
    batches = [batch("a") for _ in range(MOST_OPEN + 1)]
    for given in batches[:-1]:
        dispatcher.reward_funcs[0](**given)
    with pytest.warns(GuerdonWarning, match=f"more than {MOST_OPEN} batches"):
        dispatcher.reward_funcs[0](**batches[-1])
    count = len(calls)
    assert dispatcher.reward_funcs[1](**batches[1]) == [1.0]
    assert len(calls) == count
    with pytest.warns(GuerdonWarning, match="the oldest was released"):
        dispatcher.reward_funcs[1](**batches[0])  # it was that: it starts anew
    assert len(calls) == count + 1


def test_only_the_first_column_raises(dispatcher: Dispatcher) -> None:
    given = batch(*["fail"] * 8)
    with pytest.raises(RewardFailureError, match="'picky' failed on 8 of 8") as caught:
        dispatcher.reward_funcs[0](**given)
    assert caught.value.result is not None
    assert dispatcher.reward_funcs[1](**given) == [None] * 8


def test_the_first_column_logs() -> None:
    def chatty(completions: Any, log_extra: Any, log_metric: Any, **kwargs: Any) -> list[float]:
        log_extra("words", [len(c.split()) for c in completions])
        log_metric("mine", 3.0)
        return [1.0] * len(completions)

    extra: list[tuple[str, list[Any]]] = []
    metrics: dict[str, float] = {}
    log = {
        "log_extra": lambda column, values: extra.append((column, values)),
        "log_metric": lambda name, value: metrics.__setitem__(name, value),
    }
    with Dispatcher([reward(length.__wrapped__, lane="thread"), chatty]) as made:
        given = {**batch("a b", "c"), **log}
        made.reward_funcs[1](**given)
        assert extra == [("words", [2, 1])]
        assert metrics.pop("mine") == 3.0
        assert metrics["guerdon/length/failed_frac"] == metrics["guerdon/chatty/failed_frac"] == 0.0
        assert metrics["guerdon/length/run_p50_s"] >= 0.0
        metrics.clear()
        made.reward_funcs[0](**given)
        assert len(extra) == 1
        assert metrics == {}


def test_keys_that_differ_from_sample_to_sample_make_a_bounded_number_of_columns() -> None:
    """Each would be a column of None in every later batch."""
    memory, lengths = TrainerMemory(), []

    @reward(lane="thread")
    def keyed(completion: str) -> dict[str, float]:
        return {"score": 1.0, completion: 0.5}

    with Dispatcher([keyed]) as made:
        for step in range(6):
            result = made.score(completions=[f"sample {step}-{index}" for index in range(100)])
            extra: dict[str, list[Any]] = {}
            with warnings.catch_warnings(record=True) as caught:
                warnings.simplefilter("always")
                TrainerContext(memory).log(result, {"log_extra": extra.__setitem__}, "main")
            assert {len(values) for values in extra.values()} == {100}
            assert len(result.extra) == 100
            assert [str(one.message)[:64] for one in caught] == (
                ["reward function 'keyed' records values under more than 256 names"] if step == 2 else []
            )
            lengths.append(len(extra))
    assert lengths == [100, 200, MOST_EXTRA, MOST_EXTRA, MOST_EXTRA, MOST_EXTRA]


def test_bad_batches_are_refused_by_every_column() -> None:
    with Dispatcher([reward(lambda completion, answer: 1.0, name="f", lane="thread"), length]) as made:
        given = batch("a")
        for column in made.reward_funcs:
            with pytest.raises(DataError, match="'answer'"):
                column(**given)


def test_a_group_function_without_a_trainer_needs_the_group_size() -> None:
    @group_reward(lane="thread")
    def rank(completions: list[str]) -> list[float]:
        return [float(index) for index in range(len(completions))]

    with Dispatcher([rank]) as made, pytest.raises(DataError, match=r"Dispatcher\(..., num_generations="):
        made.reward_funcs[0](**batch("a", "b"))
    with Dispatcher([rank], num_generations=2) as made:
        assert made.reward_funcs[0](**batch("a", "b", "c", "d")) == [0.0, 1.0, 0.0, 1.0]
        with pytest.raises(DataError, match="whole groups"):
            made.reward_funcs[0](**batch("a", "b", "c"))


@pytest.mark.parametrize("on_failure", ["nan", "abstain"])
def test_closing_while_a_column_waits_raises(on_failure: Literal["nan", "abstain"]) -> None:
    @reward(lane="thread", on_failure=on_failure)
    def endless(completion: str) -> float:
        time.sleep(3)
        return 1.0

    made = Dispatcher([endless])
    timer = threading.Timer(0.3, made.close)
    timer.start()
    with pytest.raises(ClosedError):
        made.reward_funcs[0](**batch("a"))
    timer.join()


def test_ctrl_c_ends_the_batch_and_not_the_dispatcher() -> None:
    @reward(lane="asyncio")
    async def patient(completion: str) -> float:
        await asyncio.sleep(30 if completion == "slow" else 0)
        return 1.0

    with Dispatcher([patient, length]) as made:
        given = batch("slow")
        timer = threading.Timer(0.3, lambda: os.kill(os.getpid(), signal.SIGINT))

        def call() -> None:
            timer.start()
            made.reward_funcs[0](**given)

        with pytest.raises(KeyboardInterrupt):
            call()
        timer.join()
        given["completions"][0] = "quick"  # nothing of the batch is left to collect
        assert made.reward_funcs[1](**given) == [5.0]
        assert made.reward_funcs[0](**given) == [1.0]


def test_a_failed_sample_beside_a_reward_model_is_reported_once() -> None:
    with Dispatcher([length, "org/model", picky]) as made:
        given = batch("a", "fail")
        with pytest.warns(GuerdonWarning, match="org/model and still counts it"):
            assert made.reward_funcs[0](**given) == [1.0, None]
        assert made.reward_funcs[2](**given) == [1.0, None]
        assert made.reward_funcs[0](**given) == [1.0, None]  # warnings are errors here

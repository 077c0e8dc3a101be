"""`ResultFailureRate`: results of single groups or responses, judged together."""

from __future__ import annotations

from typing import Literal

import pytest

from guerdon import Dispatcher, RewardBatch, RewardFailureError, reward
from guerdon.integrations.failure_rate import ResultFailureRate


def results(dispatcher: Dispatcher, *batches: list[str]) -> list[RewardBatch]:
    found = []
    for completions in batches:
        pending = dispatcher.submit(completions=completions, num_generations=len(completions))
        try:
            found.append(pending.result())
        except RewardFailureError as error:
            found.extend([] if error.result is None else [error.result])
    return found


def fails_on_bad(completion: str) -> float:
    if completion == "bad":
        raise ValueError(completion)
    return 1.0


@pytest.mark.parametrize("on_failure", ["nan", "abstain", 0.0])
def test_failures_count_whatever_became_of_their_cells(on_failure: Literal["nan", "abstain"] | float) -> None:
    with Dispatcher([reward(fails_on_bad, lane="thread", on_failure=on_failure)]) as dispatcher:
        good, bad = results(dispatcher, ["ok"] * 4, ["bad"] * 4)
        rate = ResultFailureRate([dispatcher])
        for _ in range(7):
            rate.add(good)
        for _ in range(8):
            rate.add(bad)
        with pytest.raises(RewardFailureError, match="failed on 36 of its last 64 samples") as caught:
            rate.add(bad)
        assert caught.value.result is bad


def test_functions_of_several_dispatchers_are_counted_apart() -> None:
    with (
        Dispatcher([reward(fails_on_bad, lane="thread", name="one")]) as one,
        Dispatcher([reward(fails_on_bad, lane="thread", name="two", max_failure_rate=1.0)]) as two,
    ):
        rate = ResultFailureRate([one, two])
        bad, worse = results(one, ["bad"] * 8)[0], results(two, ["bad"] * 8)[0]
        for _ in range(20):
            rate.add(worse)
        with pytest.raises(RewardFailureError, match="'one' failed on 8 of 8 samples"):
            rate.add(bad)


def test_with_raise_the_first_failure_does() -> None:
    with Dispatcher([reward(fails_on_bad, lane="thread", on_failure="raise")]) as dispatcher:
        rate = ResultFailureRate([dispatcher])
        with pytest.raises(RewardFailureError, match='on_failure="raise"'):
            rate.add(results(dispatcher, ["bad", "ok"])[0])

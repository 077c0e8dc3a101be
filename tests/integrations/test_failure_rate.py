"""`FailureRate`: whether a function fails too often over its last samples."""

from __future__ import annotations

from typing import Literal

import pytest

from guerdon import Dispatcher, RewardBatch, RewardFailureError, reward
from guerdon.integrations.failure_rate import WINDOW, FailureRate


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
        rate = FailureRate([dispatcher], 12)
        rate.add(good)
        rate.add(bad)
        with pytest.raises(RewardFailureError, match="failed on 8 of its last 12 samples"):
            rate.add(bad)


def test_what_lies_further_back_is_forgotten() -> None:
    with Dispatcher([reward(fails_on_bad, lane="thread")]) as dispatcher:
        good, bad, one = results(dispatcher, ["ok"] * WINDOW, ["bad"] * 100, ["ok"] * 7 + ["bad"])
        rate = FailureRate([dispatcher], 128)
        rate.add(bad)
        rate.add(good)
        rate.add(one)
        rate.add(bad)
        with pytest.raises(RewardFailureError, match=rf"failed on 201 of its last {WINDOW} samples"):
            rate.add(bad)


def test_with_raise_the_first_failure_does() -> None:
    with Dispatcher([reward(fails_on_bad, lane="thread", on_failure="raise")]) as dispatcher:
        rate = FailureRate([dispatcher], 128)
        with pytest.raises(RewardFailureError, match="on_failure='raise'"):
            rate.add(results(dispatcher, ["bad", "ok"])[0])

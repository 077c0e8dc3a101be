"""Limits on output: a call that prints too much fails, and only that call."""

from __future__ import annotations

import re
import time

import pytest

from guerdon import Dispatcher, Status, group_reward, reward
from tests.stress import limited_functions

MOST = 20_000


@pytest.mark.fault(
    "a call prints more than its `max_output`: by Python, by C, by system calls, or through a child",
    sees="`error` that names bytes and limit, without a retry; siblings are scored",
)
@pytest.mark.parametrize("isolation", ["worker", "call"])
def test_a_call_that_prints_too_much_is_an_error(isolation: str) -> None:
    verbs = ["print", "error", "descriptor", "stdio", "child"]
    texts = [f"{verb}:{size}" for verb in verbs for size in (MOST, MOST + 10)] + ["print:0"] * 20
    function = reward(limited_functions.speak, max_output=MOST, retries=3, isolation=isolation, max_failure_rate=1.0)
    with Dispatcher([function], workers=2) as dispatcher:
        result = dispatcher.score(completions=texts)
    failures = result.failures()
    assert [failure.sample for failure in failures] == [1, 3, 5, 7, 9]
    for failure in failures:
        assert (failure.status, failure.attempts) == (Status.ERROR, 1)
        printed = re.fullmatch(r"printed (\d+) bytes, more than its max_output of 20 kB allows", failure.reason)
        assert printed is not None, failure.reason
        # as counted when it was interrupted, maybe while printing
        assert MOST < int(printed[1]) <= MOST + 10
    kept = [index for index in range(len(texts)) if index not in (1, 3, 5, 7, 9)]
    assert result.rewards[kept, 0, 0].tolist() == [float(texts[index].partition(":")[2]) for index in kept]


@pytest.mark.fault(
    "a call prints without end, also one that catches every exception",
    sees="`error` within a fraction of a second, with the traceback if it lets the exception through",
)
def test_a_flood_is_ended_at_once() -> None:
    function = reward(limited_functions.speak, max_output="1MB", timeout=60, max_failure_rate=1.0)
    with Dispatcher([function], workers=2) as dispatcher:
        dispatcher.score(completions=["print:1"])
        start = time.monotonic()
        result = dispatcher.score(completions=["print:1", "flood", "print:2", "deaf", "print:3"])
        assert time.monotonic() - start < 40  # not the timeout
    assert {f.sample: f.status for f in result.failures()} == {1: Status.ERROR, 3: Status.ERROR}
    interrupted, killed = result.failures()
    assert "more than its max_output of 1 MB allows" in interrupted.reason
    assert "in speak" in (interrupted.traceback or "")
    assert "more than its max_output of 1 MB allows" in killed.reason
    assert result.rewards[[0, 2, 4], 0, 0].tolist() == [1.0, 2.0, 3.0]


def test_output_of_setup_does_not_count_for_the_call() -> None:
    function = reward(limited_functions.Large(), name="large", max_output=5000, max_failure_rate=1.0)
    with Dispatcher([function], workers=1) as dispatcher:
        result = dispatcher.score(completions=["10", "4000", "6000", "10"])
    assert [failure.sample for failure in result.failures()] == [2]


def test_groups_are_calls_too() -> None:
    function = group_reward(limited_functions.speak_of_group, max_output=1000, max_failure_rate=1.0)
    with Dispatcher([function, reward(limited_functions.fits)], workers=2) as dispatcher:
        result = dispatcher.score(completions=["print:400", "print:400", "print:400", "print:700"], num_generations=2)
    assert {(f.sample, f.status) for f in result.failures() if f.function == "speak_of_group"} == {
        (2, Status.ERROR),
        (3, Status.ERROR),
    }


def test_limited_and_unlimited_calls_share_the_workers() -> None:
    functions = [reward(limited_functions.speak, max_output=100), reward(limited_functions.speak, name="free")]
    with Dispatcher(functions, workers=2) as dispatcher:
        result = dispatcher.score(completions=[f"print:{index % 50}" for index in range(400)], num_generations=4)
    assert not result.failures()
    assert result.rewards.reshape(400, 2).tolist() == [[index % 50, index % 50] for index in range(400)]

"""Limits of a call: a function that takes too much memory or prints too much fails in its own
cell."""

from __future__ import annotations

import re
import time

import pytest

from guerdon import Dispatcher, Status, group_reward, reward
from tests.stress import limited_functions

LIMIT = "100MB"
TOO_MUCH = 200_000_000


@pytest.mark.fault(
    "a call takes more memory than its `memory_limit`, in Python or in NumPy",
    sees="`error` with MemoryError, the limit and the traceback; siblings are scored, the worker is replaced",
)
@pytest.mark.parametrize("isolation", ["worker", "call"])
def test_excess_is_an_error_that_names_the_limit(isolation: str) -> None:
    texts = ["bytes:1000", f"bytes:{TOO_MUCH}", "bytes:50000000", f"array:{TOO_MUCH}", "pid"]
    function = reward(limited_functions.take, memory_limit=LIMIT, isolation=isolation, max_failure_rate=1.0)
    with Dispatcher([function], workers=1) as dispatcher:
        result = dispatcher.score(completions=texts)
    failures = result.failures()
    assert [(f.sample, f.status) for f in failures] == [(1, Status.ERROR), (3, Status.ERROR)]
    assert failures[0].reason == "MemoryError (memory_limit of 100 MB)"
    assert failures[1].reason.endswith("(memory_limit of 100 MB)")
    assert "in take" in (failures[0].traceback or "")
    assert result.rewards[[0, 2], 0, 0].tolist() == [1.0, 1.0]


@pytest.mark.fault(
    "C code under a `memory_limit` aborts when it gets no memory",
    sees="`crashed` with the signal and the limit, after one more try alone",
)
def test_an_abort_under_the_limit_names_it() -> None:
    with Dispatcher([reward(limited_functions.take, memory_limit=LIMIT)], workers=1) as dispatcher:
        result = dispatcher.score(completions=[f"malloc:{TOO_MUCH}", f"abort:{TOO_MUCH}", "bytes:1000"])
    (failure,) = result.failures()
    assert (failure.sample, failure.status) == (1, Status.CRASHED)
    assert failure.reason == "the worker process was killed by SIGABRT, under a memory_limit of 100 MB"
    assert result.rewards[[0, 2], 0, 0].tolist() == [1.0, 1.0]


@pytest.mark.fault(
    "a child process of a call takes more than the call's `memory_limit`",
    sees="the child fails: it inherits the limit; the call sees how it ended",
)
def test_descendants_inherit_the_limit_and_reserved_space_is_free() -> None:
    texts = [f"child:{TOO_MUCH}", "child:1000", f"reserve:{8 << 30}"]
    with Dispatcher([reward(limited_functions.take, memory_limit=LIMIT)], workers=1) as dispatcher:
        result = dispatcher.score(completions=texts)
    assert result.rewards[:, 0, 0].tolist() == [1.0, 0.0, 1.0]


def test_only_its_own_calls_count() -> None:
    """Another function's leak, and what loading and setup took, are not this function's."""
    functions = [
        reward(limited_functions.keep),
        reward(limited_functions.fits, memory_limit=LIMIT),
        reward(limited_functions.Large(), name="large", memory_limit=LIMIT, setup_timeout=20),
    ]
    with Dispatcher(functions, workers=1) as dispatcher:
        for _ in range(3):
            result = dispatcher.score(completions=["60000000", "40000000"])
            assert not result.failures()
        with_setup = dispatcher.stats()["worker_restarts"]
    assert with_setup == 0


@pytest.mark.fault(
    "a function with a `memory_limit` leaks a little with every call",
    sees="nothing: its worker is replaced when half of the limit is taken, before any call fails",
)
def test_a_leak_fails_no_call() -> None:
    texts = ["keep:4000000"] * 120
    with Dispatcher(
        [
            reward(limited_functions.take, memory_limit="1GB", name="warm"),
            reward(limited_functions.take, memory_limit=LIMIT),
        ]
    ) as made:
        for start in range(0, len(texts), 8):  # frames as small as a busy scheduler makes them
            result = made.score(completions=texts[start : start + 8])
            assert not result.failures()
        assert made.stats()["worker_restarts"] >= 2


def test_the_limit_is_lifted_for_others() -> None:
    functions = [reward(limited_functions.take, memory_limit=LIMIT), reward(limited_functions.take, name="free")]
    with Dispatcher(functions, workers=1) as dispatcher:
        for _ in range(3):
            result = dispatcher.score(completions=["bytes:1000", f"bytes:{TOO_MUCH}"])
            assert [(f.function, f.sample) for f in result.failures()] == [("take", 1)]


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

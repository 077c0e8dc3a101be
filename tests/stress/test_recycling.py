"""Recycling: workers are replaced by calls, age and memory, and nobody notices."""

from __future__ import annotations

import gc
import os
import threading
import time
from collections import Counter

import psutil
import pytest

from guerdon import Dispatcher, Recycle, RegistrationError, reward
from tests.stress import careless_modules, limited_functions
from tests.stress.harness import wait_for


@pytest.mark.fault(
    "workers are replaced every 100 calls",
    sees="nothing: every value is there, memory, descriptors, threads and processes stay as they are",
)
@pytest.mark.parametrize("count", [2_000, pytest.param(100_000, marks=pytest.mark.soak)])
def test_row_8_workers_are_recycled_every_100_calls(count: int) -> None:
    ours = psutil.Process()
    with Dispatcher([reward(limited_functions.spin)], workers=2, recycle=Recycle(calls=100)) as dispatcher:
        size, ran = 1000, Counter[int]()
        dispatcher.score(completions=["0"] * size)
        before = (ours.num_fds(), threading.active_count(), len(dispatcher.worker_pids()))
        rss = ours.memory_info().rss
        for _ in range(count // size):
            result = dispatcher.score(completions=["0"] * size)
            assert not result.failures()
            ran.update(result.extra["spin/pid"])
        assert dispatcher.stats()["kills"] == 0
        assert max(ran.values()) <= 100
        assert len(ran) < count / 100 * 2.5, "replaced far too early"
        # a worker that leaves and its successor
        wait_for(
            lambda: ours.num_fds() <= before[0] + 8 and len(ours.children(True)) <= 8, "no more processes than before"
        )
        assert threading.active_count() <= before[1]
        gc.collect()
        assert ours.memory_info().rss < rss + (64 << 20)
    wait_for(lambda: not ours.children(recursive=True), "every process ends")


def test_a_worker_is_replaced_for_its_age() -> None:
    with Dispatcher([reward(limited_functions.spin)], workers=1, recycle=Recycle(age=0.2)) as dispatcher:
        pids: set[int] = set()
        until = time.monotonic() + 60
        while len(pids) < 2 and time.monotonic() < until:
            result = dispatcher.score(completions=["0.01"] * 2)
            assert not result.failures()
            pids.update(result.extra["spin/pid"])
    assert len(pids) >= 2


def test_workers_that_load_longer_than_they_may_live_are_of_use(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CARELESS", "slow threads")
    functions = [reward(careless_modules.act, max_failure_rate=1.0)]
    with Dispatcher(functions, workers=1, recycle=Recycle(age=0.2), batch_timeout=100) as dispatcher:
        for _ in range(3):
            assert dispatcher.score(completions=["ab"] * 2).rewards.ravel().tolist() == [2.0, 2.0]
            time.sleep(0.3)
        assert dispatcher.stats()["worker_restarts"] < 8


def test_a_worker_is_replaced_for_its_memory() -> None:
    with Dispatcher([reward(limited_functions.keep)], workers=1, recycle=Recycle(rss="200MB")) as dispatcher:
        pids: set[int] = set()
        until = time.monotonic() + 60
        while len(pids) < 2 and time.monotonic() < until:
            assert not dispatcher.score(completions=["30000000"] * 2).failures()
            pids.update(dispatcher.worker_pids())
            time.sleep(0.1)
    assert len(pids) >= 2


def test_an_age_shorter_than_a_start_still_runs_all() -> None:
    with Dispatcher([reward(limited_functions.spin)], workers=2, recycle=Recycle(age=1e-6, calls=1)) as dispatcher:
        result = dispatcher.score(completions=["0"] * 30)
    assert not result.failures()
    assert len(set(result.extra["spin/pid"])) == 30


def test_a_pinned_function_is_not_recycled() -> None:
    def counting(completions: list[str], **columns: object) -> list[float]:
        return [float(os.getpid())] * len(completions)

    with Dispatcher([counting], workers=1, recycle=Recycle(calls=1)) as dispatcher:
        seen = {dispatcher.score(prompts=["p"], completions=["c"]).rewards.item() for _ in range(5)}
    assert len(seen) == 1


@pytest.mark.parametrize(
    "given",
    [
        {},
        {"calls": 0},
        {"calls": True},
        {"calls": 1.5},
        {"age": 0},
        {"age": float("inf")},
        {"age": 10**400},
        {"age": "1"},
        {"rss": "much"},
        {"rss": 0},
    ],
    ids=str,
)
def test_a_wrong_bound_is_refused(given: dict[str, object]) -> None:
    with pytest.raises(RegistrationError, match="Recycle"):
        Recycle(**given)  # type: ignore[arg-type]


def test_only_a_recycle_will_do() -> None:
    with pytest.raises(RegistrationError, match="recycle=100: expected a Recycle"):
        Dispatcher([reward(limited_functions.spin)], recycle=100)  # type: ignore[arg-type]

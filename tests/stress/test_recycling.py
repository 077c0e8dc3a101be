"""Recycling and isolation: workers are replaced by calls, age and memory, or after each call, and
nobody notices."""

from __future__ import annotations

import gc
import threading
import time
from collections import Counter
from typing import Any

import psutil
import pytest

from guerdon import Dispatcher, Recycle, RegistrationError, StatefulReward, Status, reward
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


@pytest.mark.parametrize(
    ("function", "text", "recycle"),
    [
        (limited_functions.spin, "0.01", Recycle(age=0.2)),
        (limited_functions.keep, "30000000", Recycle(rss="200MB")),
    ],
    ids=["age", "memory"],
)
def test_a_worker_is_replaced_for_its_age_or_memory(function: Any, text: str, recycle: Recycle) -> None:
    pids: set[int] = set()
    with Dispatcher([reward(function)], workers=1, recycle=recycle) as dispatcher:

        def is_replaced() -> bool:
            time.sleep(0.1)
            result = dispatcher.score(completions=[text] * 2)
            assert not result.failures()
            pids.update(result.extra[f"{function.__name__}/pid"])
            return len(pids) >= 2

        wait_for(is_replaced)


def test_workers_that_load_longer_than_they_may_live_are_of_use(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CARELESS", "slow threads")
    functions = [reward(careless_modules.act, max_failure_rate=1.0)]
    with Dispatcher(functions, workers=1, recycle=Recycle(age=0.2), batch_timeout=100) as dispatcher:
        for _ in range(3):
            assert dispatcher.score(completions=["ab"] * 2).rewards.ravel().tolist() == [2.0, 2.0]
            time.sleep(0.3)
        assert dispatcher.stats()["worker_restarts"] < 8


def test_an_age_shorter_than_a_start_still_runs_all() -> None:
    with Dispatcher([reward(limited_functions.spin)], workers=2, recycle=Recycle(age=1e-6, calls=1)) as dispatcher:
        result = dispatcher.score(completions=["0"] * 30)
    assert not result.failures()
    assert len(set(result.extra["spin/pid"])) == 30


def test_a_wrong_bound_is_refused() -> None:
    ages: list[Any] = [0, float("inf"), 10**400, "1"]
    wrong = [
        *({"calls": calls} for calls in (0, True, 1.5)),
        *({"age": age} for age in ages),
        {"rss": "much"},
        {"rss": 0},
    ]
    for given in ({}, *wrong):
        with pytest.raises(RegistrationError, match="Recycle"):
            Recycle(**given)
    with pytest.raises(RegistrationError, match="recycle=100: expected a Recycle"):
        Dispatcher([reward(limited_functions.spin)], recycle=100)  # type: ignore[arg-type]


@pytest.mark.fault(
    'functions leave state behind, hang, abort and raise under `isolation="call"`',
    sees="each in its own cell; no call sees what another left, each has a process of its own",
)
def test_calls_share_nothing_and_fail_alone() -> None:
    texts = ["fine"] * 60
    wrong = {7: ("hang", Status.TIMEOUT), 23: ("die", Status.CRASHED), 40: ("raise", Status.ERROR)}
    for index, (text, _) in wrong.items():
        texts[index] = text
    function = reward(limited_functions.leaking, isolation="call", timeout=3.0, grace=0.2)
    with Dispatcher(
        [function, reward(limited_functions.leaking, name="shared", timeout=3.0, grace=0.2)], workers=2
    ) as dispatcher:
        result = dispatcher.score(completions=texts, num_generations=4)
        pids = [pid for pid in result.extra["leaking/pid"] if pid is not None]
        assert len(set(pids)) == len(pids) == 57
        kept = [index for index in range(60) if index not in wrong]
        assert result.rewards.reshape(60, 2)[kept, 0].tolist() == [1.0] * 57
        assert {f.sample: f.status for f in result.failures() if f.function == "leaking"} == {
            index: status for index, (_, status) in wrong.items()
        }
        assert result.rewards.reshape(60, 2)[kept, 1].max() > 1

        def all_are_back() -> bool:
            if len(dispatcher.worker_pids()) < 2:  # they start as work comes
                dispatcher.score(completions=["fine"] * 60, num_generations=4)
            return len(dispatcher.worker_pids()) >= 2

        wait_for(all_are_back, "as many workers as before")


class Once(StatefulReward):
    """Counts its own setups and finishes groups."""

    def __init__(self) -> None:
        self.setups = 0

    def setup(self) -> None:
        self.setups += 1

    def score(self, completion: str, log_extra: object) -> float:
        log_extra("seen", [completion])  # type: ignore[operator]
        return float(self.setups)

    def finish_group(self, scores: list[float | None], **columns: object) -> list[float | None]:
        return [None if score is None else score * 10 + self.setups for score in scores]


def test_each_fork_is_set_up_and_its_records_arrive() -> None:
    with Dispatcher([reward(Once(), name="once", isolation="call")], workers=2) as dispatcher:
        result = dispatcher.score(completions=[str(index) for index in range(12)], num_generations=3)
    assert not result.failures()
    assert result.rewards.ravel().tolist() == [11.0] * 12
    assert result.extra["seen"] == [str(index) for index in range(12)]


def counting(completions: list[str], **columns: object) -> list[float]:
    limited_functions._seen.append("batch")
    return [float(len(limited_functions._seen))] * len(completions)


def test_a_pinned_function_keeps_its_state_and_is_not_recycled() -> None:
    functions = [counting, reward(limited_functions.leaking, isolation="call")]
    with Dispatcher(functions, workers=2, recycle=Recycle(calls=1)) as dispatcher:
        for step in (1, 2, 3):
            result = dispatcher.score(prompts=["p"] * 8, completions=["fine"] * 8)
            assert result.rewards.reshape(8, 2).tolist() == [[float(step), 1.0]] * 8


def test_retries_get_a_fork_each() -> None:
    function = reward(limited_functions.leaking, isolation="call", retries=2, max_failure_rate=1.0)
    with Dispatcher([function], workers=2) as dispatcher:
        (failure,) = dispatcher.score(completions=["fine", "raise", "fine"]).failures()
    assert (failure.sample, failure.status, failure.attempts) == (1, Status.ERROR, 3)

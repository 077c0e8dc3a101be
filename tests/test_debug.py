"""``Dispatcher(..., debug=True)``: the same results, from functions in the thread that waits."""

from __future__ import annotations

import asyncio
import bdb
import threading
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from guerdon import Dispatcher, GuerdonWarning, RegistrationError, RetryAfter, StatefulReward, group_reward, reward
from guerdon import rewards as own
from tests.simple import streamed

TEXTS = ["4", "", "seven", "7", "raise", "none", "late", "10"]
RETRIED: set[str] = set()


@reward
def exact(completion: str, answer: str) -> float | None:
    if completion == "raise":
        raise ValueError("no such answer")
    return None if completion == "none" else float(completion == answer)


@reward
async def waits(completion: str) -> float:
    await asyncio.sleep(0.001)
    if completion == "raise":
        raise KeyError("raise")
    return float(len(completion))


@reward(timeout=5, lane="thread")
def slow(completion: str) -> float:
    return float(completion.isdecimal())


@group_reward
def ranks(completions: list[str]) -> list[float]:
    order = sorted(range(len(completions)), key=lambda place: completions[place])
    return [float(order.index(place)) for place in range(len(completions))]


def of_batch(completions: list[str], answer: list[str], **columns: Any) -> list[float | None]:
    return [None if text == "none" else float(text in each) for text, each in zip(completions, answer, strict=True)]


@reward
def records(completion: str, log_extra: Callable[..., None]) -> dict[str, Any]:
    log_extra("length", [len(completion)])
    return {"score": 0.5, "kind": completion.isdecimal()}


@reward(retries=1, lane="thread")
def again(completion: str) -> float:
    if completion not in RETRIED:
        RETRIED.add(completion)
        raise RetryAfter(0.001)
    return 1.0


@reward(run_if={"exact": "> 0.5"})
def gated(completion: str) -> float:
    return 2.0


@reward(batch_size=3)
def several(completions: list[str]) -> list[float]:
    return [float(len(text)) for text in completions]


class Table(StatefulReward):
    def setup(self) -> None:
        self.known = {"4", "7"}

    def score(self, completion: str) -> float:
        return float(completion in self.known)


FUNCTIONS = {
    "exact": [exact],
    "waits": [waits],
    "slow": [slow],
    "ranks": [ranks],
    "of_batch": [of_batch],
    "records": [records],
    "again": [again],
    "gated": [exact, gated],
    "several": [several],
    "stateful": [reward(Table(), name="table")],
    "native": [own.exact_match("answer")],
    "together": [exact, waits, ranks, of_batch],
}
BATCH: dict[str, Any] = {
    "prompts": ["p"] * 4 + ["q"] * 4,
    "completions": TEXTS,
    "answer": ["4", "5", "seven", "7", "8", "9", "10", "10"],
    "num_generations": 4,
}


def debugged(functions: list[Any], **options: Any) -> Dispatcher:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", GuerdonWarning)
        return Dispatcher(functions, debug=True, **options)


def outcome(result: Any) -> tuple[Any, ...]:
    failures = [(each.function, each.sample, each.reason) for each in result.failures()]
    extra = {name: list(map(str, values)) for name, values in result.extra.items()}
    return result.status.tolist(), np.nan_to_num(result.rewards, nan=-9).tolist(), failures, extra


@pytest.mark.parametrize(
    ("name", "how"), [*((name, "submit") for name in FUNCTIONS), ("together", "ascore"), ("together", "groups")]
)
def test_a_debugged_dispatcher_gives_the_plain_ones_results(name: str, how: str) -> None:
    functions = FUNCTIONS[name]

    def results(dispatcher: Dispatcher) -> Any:
        RETRIED.clear()
        with dispatcher:
            if how == "ascore":
                return asyncio.run(dispatcher.ascore(**BATCH))
            pending = dispatcher.submit(**BATCH)
            if how == "groups":
                assert sorted(group.index for group in pending.groups()) == [0, 1]
            return pending.result()

    options: dict[str, Any] = {"max_failure_rate": 1.0, "workers": 1}
    assert outcome(results(debugged(functions, **options))) == outcome(results(Dispatcher(functions, **options)))


def test_functions_run_in_the_thread_that_waits_one_after_another() -> None:
    threads: set[int] = set()
    under_way: list[str] = []

    @reward(timeout=0.05)
    def noted(completion: str) -> float:
        assert not under_way
        under_way.append(completion)
        threads.add(threading.get_ident())
        time.sleep(0.06)  # past the timeout, which is off
        under_way.pop()
        return 1.0

    other = reward(noted.__wrapped__ if hasattr(noted, "__wrapped__") else noted, name="other")
    with debugged([noted, other], batch_timeout=0.1) as dispatcher:
        result = dispatcher.score(completions=["a", "b"], batch_timeout=0.1, group_timeout=0.1)
    assert result.rewards.ravel().tolist() == [1.0] * 4
    assert threads == {threading.get_ident()}


def test_an_async_function_runs_beside_a_running_loop() -> None:
    loops = []

    @reward
    async def noted(completion: str) -> float:
        loops.append(asyncio.get_running_loop())
        return 1.0

    async def scored(dispatcher: Dispatcher) -> tuple[Any, float | None]:
        one = await dispatcher.ascore_one(completion="a")
        return asyncio.get_running_loop(), one.rewards["noted"]

    with debugged([noted]) as dispatcher:
        loop, value = asyncio.run(scored(dispatcher))
    assert value == 1.0
    assert loops[0] is not loop


def test_quitting_the_debugger_ends_the_batch() -> None:
    @reward
    def stopped(completion: str) -> float:
        raise bdb.BdbQuit

    with debugged([stopped]) as dispatcher:
        with pytest.raises(bdb.BdbQuit):
            dispatcher.score(completions=["a", "b"])
        assert not dispatcher.closed


def test_a_batch_that_nobody_waits_for_ends_with_its_dispatcher() -> None:
    dispatcher = debugged([exact])
    pending = dispatcher.submit(**BATCH)
    start = time.monotonic()
    dispatcher.close()
    assert time.monotonic() - start < 4
    assert pending.done


def test_an_open_batch_with_backpressure_runs_while_it_is_added_to() -> None:
    with debugged([several]) as dispatcher:
        result = streamed(dispatcher, *({"completions": [text]} for text in TEXTS[:4]), max_pending=1)
        assert result.rewards.ravel().tolist() == [1.0, 0.0, 5.0, 1.0]


def test_debugging_is_announced_once(tmp_path: Path) -> None:
    with pytest.warns(GuerdonWarning, match="without timeouts and limits, and nothing is killed") as warned:
        dispatcher = Dispatcher([exact], debug=True, workers=1)
    with dispatcher:
        dispatcher.score(**BATCH)
        dispatcher.score(**BATCH)
    assert len(warned) == 1
    with pytest.raises(RegistrationError, match="debug='yes': expected True or False"):
        Dispatcher([exact], debug="yes")  # type: ignore[arg-type]

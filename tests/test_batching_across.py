"""Samples of batches that were submitted apart, in one call, on every lane."""

from __future__ import annotations

import asyncio
import math
import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from guerdon import Dispatcher, Limit, PendingBatch, StatefulReward, Status, reward
from tests.clock import eventually
from tests.simple import on_lane, shared_dispatcher

LANES = ("process", "thread", "asyncio")
ONE: Any = {"limit": Limit(concurrency=1), "timeout": 60}


class Gate:
    """The first call waits in its function until it is told to go on: what is submitted meanwhile
    waits for it."""

    def __init__(self, folder: Path) -> None:
        self.began, self.open = folder / "began", folder / "open"
        self.held, self.released = folder / "held", folder / "released"

    def waits(self, completions: list[Any]) -> bool:
        """Whether this is that call, and is to wait still."""
        if completions[0] != "first":
            return False
        self.began.touch()
        return not self.open.exists()

    def on(self, lane: str, scores: Callable[..., list[Any]], **options: Any) -> Any:
        """``scores`` as a reward function of a lane, behind the gate."""

        def plain(completions: list[Any], **row: Any) -> list[Any]:
            while self.waits(completions):
                time.sleep(0.002)
            return scores(completions, **row)

        async def waits(completions: list[Any], **row: Any) -> list[Any]:
            while self.waits(completions):  # noqa: ASYNC110 - for a file, as on the other lanes
                await asyncio.sleep(0.002)
            return scores(completions, **row)

        return reward(waits if lane == "asyncio" else plain, name="f", lane=lane, **{**ONE, **options})

    def close(self, made: Dispatcher, **row: list[Any]) -> PendingBatch:
        first = made.submit(completions=["first"], **row)
        eventually(self.began.exists)
        return first

    def hold(self, completions: list[Any], **row: Any) -> list[float]:
        """A call on several waits until it is released."""
        if len(completions) > 1:
            self.held.touch()
            while not self.released.exists():
                time.sleep(0.002)
        return together(completions)


@pytest.fixture
def gate(tmp_path: Path) -> Gate:
    return Gate(tmp_path)


def together(completions: list[Any], **row: Any) -> list[float]:
    return [float(len(completions))] * len(completions)


def values(pending: PendingBatch) -> list[float]:
    values: list[float] = pending.result(60).rewards.ravel().tolist()
    return values


@pytest.mark.parametrize("lane", LANES)
def test_simultaneous_requests_go_together(gate: Gate, lane: str) -> None:
    with Dispatcher([gate.on(lane, together, batch_size=8)], workers=2) as made:
        first = gate.close(made)
        pending_batches = [made.submit(completions=[f"{batch}{one}" for one in range(3)]) for batch in range(4)]
        gate.open.touch()
        assert values(first) == [1.0]
        assert [values(pending) for pending in pending_batches] == [[8.0] * 3, [8.0] * 3, [8.0, 8.0, 4.0], [4.0] * 3]


def named(completions: list[Any], **row: Any) -> list[float]:
    """Returns how many there are; each value has to be that of its own completion."""
    for name, column in row.items():
        assert column == [f"{name} of {completion}" for completion in completions]
    return together(completions)


@pytest.mark.parametrize("lane", LANES)
def test_batches_with_other_columns_stay_apart(gate: Gate, lane: str) -> None:
    def columns(completions: list[Any], *names: str) -> dict[str, Any]:
        of = {name: [f"{name} of {completion}" for completion in completions] for name in names}
        return {"completions": completions, **of}

    with Dispatcher([gate.on(lane, named, batch_size=8)], workers=1) as made:
        first = gate.close(made, a=["a of first"])
        one = [made.submit(**columns([f"{at}x", f"{at}y\u20ac"], "a")) for at in range(2)]
        two = [made.submit(**columns([f"{at}z"], "a", "b")) for at in range(3)]
        gate.open.touch()
        assert values(first) == [1.0]
        assert [values(pending) for pending in one] == [[4.0] * 2] * 2
        assert [values(pending) for pending in two] == [[3.0]] * 3


def recording(completions: list[Any], log_extra: Any) -> list[float]:
    log_extra("beside", [len(completions)] * len(completions))
    return together(completions)


def stately(completions: list[Any], trainer_state: Any) -> list[float]:
    return [float(trainer_state)] * len(completions)


@pytest.mark.parametrize("lane", LANES)
def test_functions_of_the_whole_batch_are_never_mixed(lane: str) -> None:
    functions = [
        reward(recording, lane=lane, batch_size=8, **ONE),
        reward(stately, lane=lane, batch_size=8, **ONE),
    ]
    with Dispatcher(functions, workers=1) as made:
        pending_batches = [made.submit(completions=["c"] * 3, trainer_state=at) for at in range(6)]
        for at, pending in enumerate(pending_batches):
            result = pending.result(60)
            assert result.rewards[:, 0].tolist() == [[3.0, float(at)]] * 3
            assert dict(result._recorded[0].extra) == {"beside": [3, 3, 3]}


@pytest.mark.parametrize("lane", LANES)
def test_cancelling_one_batch_leaves_the_others_of_its_call(gate: Gate, lane: str) -> None:
    with Dispatcher([gate.on(lane, gate.hold, batch_size=8)], workers=1) as made:
        first = gate.close(made)
        one, other = made.submit(completions=list("abc")), made.submit(completions=list("def"))
        gate.open.touch()
        eventually(gate.held.exists)
        one.cancel()
        assert one.result(60).status.ravel().tolist() == [Status.CANCELLED] * 3
        gate.released.touch()
        assert values(other) == [6.0] * 3
        assert values(first) == [1.0]
        assert values(made.submit(completions=["d"])) == [1.0]


def test_batches_that_grow_fill_calls_together() -> None:
    """Only a call that is full can start anything here: a minute is longer than what is waited
    for."""
    with Dispatcher([reward(together, lane="thread", batch_size=4, batch_wait=60.0)]) as made:
        pending_batches = [made.stream() for _ in range(4)]
        for pending in pending_batches:
            pending.add(completions=["a"])
        for pending in pending_batches:
            assert next(pending.groups(timeout=30)).rewards.tolist() == [[4.0]]
            pending.finish()


@pytest.mark.parametrize("lane", ["thread", "process"])
def test_a_dump_names_the_samples_of_all_batches_of_a_call(gate: Gate, lane: str) -> None:
    with Dispatcher([gate.on(lane, gate.hold, batch_size=8)], workers=1) as made:
        gate.close(made)
        one, other = made.submit(completions=list("ab")), made.submit(completions=list("cde"))
        gate.open.touch()
        eventually(gate.held.exists)
        seen = made.dump(timeout=30)
        gate.released.touch()
        assert sorted((call.batch, list(call.samples)) for call in seen) == [(2, [0, 1]), (3, [0, 1, 2])]
        assert seen.waiting == {"f": 0}
        assert values(one) + values(other) == [5.0] * 5


class CentredReward(StatefulReward):
    """Its scores are finished by group."""

    def score(self, completions: list[str]) -> list[float]:
        return [float(len(completion)) for completion in completions]

    def finish_group(self, scores: list[float | None], **columns: Any) -> list[float | None]:
        known = [score for score in scores if score is not None]
        return [None if score is None else score - max(known) for score in scores]


BAD = ("raise", "nan", "none", "text", "kill")


# The most samples in a call of each function. That of five ends its process on the process lane.
SIZES = (1, 3, 5, 8)


def bounded(lane: str, most: int) -> Any:
    kills = (lane, most) == ("process", 5)

    def scored(completions: list[str]) -> list[Any]:
        if not 1 <= len(completions) <= most:
            raise SystemExit(f"a call has {len(completions)} samples")
        if kills and "kill" in completions:
            os._exit(1)
        if {"raise", "kill"} & set(completions):
            raise ValueError("a bad sample")
        odd = {"nan": math.nan, "none": None, "text": "1"}
        return [odd.get(text, float(len(text))) for text in completions]

    return on_lane(scored, lane, name=f"{lane}-{most}", batch_size=most)


def serial(text: str, function: str) -> tuple[float, Status]:
    if text == "none":
        return math.nan, Status.ABSTAINED
    if text == "kill" and function == "process-5":
        return math.nan, Status.CRASHED
    return (math.nan, Status.ERROR) if text in BAD else (float(len(text)), Status.OK)


every_lane = shared_dispatcher(
    [*(bounded(lane, most) for lane in LANES for most in SIZES), reward(CentredReward(), lane="thread", batch_size=4)],
    workers=2,
    max_failure_rate=1.0,
)


text = st.one_of(*[st.text(max_size=5)] * 5, st.sampled_from(BAD[:4]), st.sampled_from(BAD))
batches = st.lists(st.tuples(st.lists(text, min_size=1, max_size=40), st.booleans()), min_size=1, max_size=8)


@settings(max_examples=max(1, settings().max_examples // 5))
@given(batches, st.booleans())
def test_each_of_many_batches_ends_as_in_a_serial_loop(
    every_lane: Dispatcher, given: list[tuple[list[str], bool]], grouped: bool
) -> None:
    pending_batches = []
    for completions, more in given:
        size = len(completions) if grouped else 1
        if more:
            pending_batches.append(every_lane.stream(num_generations=size))
            pending_batches[-1].add(completions=completions[: len(completions) // 2 + 1])
        else:
            pending_batches.append(every_lane.submit(completions=completions, num_generations=size))
    for (completions, more), pending in zip(given, pending_batches, strict=True):
        if more and (rest := completions[len(completions) // 2 + 1 :]):
            pending.add(completions=rest)
        if more:
            pending.finish()
    for (completions, _), pending in zip(given, pending_batches, strict=True):
        result = pending.result(60)
        rewards, status = (array.reshape(len(completions), -1) for array in (result.rewards, result.status))
        for function, name in enumerate(result.functions[:-1]):
            wanted = [serial(one, name) for one in completions]
            assert status[:, function].tolist() == [state for _, state in wanted]
            values = np.array([value for value, _ in wanted], np.float32)
            assert np.array_equal(rewards[:, function], values, equal_nan=True)
        longest = max(map(len, completions))
        assert rewards[:, -1].tolist() == [float(len(one) - longest) if grouped else 0.0 for one in completions]
        for failure in result.failures():
            most = int(failure.function.split("-")[1])
            assert failure.attempts <= math.ceil(math.log2(most)) + 1
        assert len(list(pending.groups(timeout=60))) == len(result.rewards)

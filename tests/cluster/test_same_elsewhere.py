"""Gates, gathered calls, records and what cuts a batch short mean the same here, on the engine of
this host and on a node."""

from __future__ import annotations

import asyncio
import itertools
import time
from collections.abc import Iterator
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from guerdon import Dispatcher, RewardBatch, StatefulReward, Status, pairwise, reward
from tests.cluster.in_memory import ClusterDispatcher, InMemoryCluster
from tests.simple import on_lane

WHERE = ["here", "host", "node"]
COMPLETIONS = ["a", "bb", "ccc", "d"]
LANES = ["process", "thread", "asyncio"]


def dispatcher_on(where: str, functions: list[Any], workers: int = 2) -> AbstractContextManager[Dispatcher]:
    options: dict[str, Any] = {"max_failure_rate": 1.0}
    if where == "node":
        return ClusterDispatcher(functions, InMemoryCluster(workers), **options)
    return Dispatcher(functions, workers=workers, cluster="host" if where == "host" else None, **options)


def anywhere(lane: str, where: str) -> dict[str, Any]:
    return {"node": "any"} if where == "node" and lane != "process" else {}


def scored_and_streamed(dispatcher: Dispatcher) -> Iterator[RewardBatch]:
    """The same samples in a batch and in a stream."""
    yield dispatcher.score(completions=COMPLETIONS, num_generations=2)
    stream = dispatcher.stream(num_generations=2)
    for completion in COMPLETIONS:
        stream.add(completions=[completion])
    stream.finish()
    yield stream.result(timeout=60)


class ShapedReward(StatefulReward):
    """Its score opens no gate of these tests, its finished value does."""

    def score(self, completion: str) -> float:
        return float(len(completion))

    def finish_group(self, scores: list[float | None], **columns: Any) -> list[float | None]:
        return [None if score is None else score + 10 for score in scores]


class ShapedOnLoop(ShapedReward):
    async def score(self, completion: str) -> float:  # type: ignore[override]
        return float(len(completion))


class ShapedInteger(ShapedReward):
    def score(self, completion: str) -> int:
        return len(completion)


def source(lane: str, where: str) -> Any:
    kind = {"asyncio": ShapedOnLoop, "integers": ShapedInteger}.get(lane, ShapedReward)
    name: Any = {"integers": "thread"}.get(lane, lane)
    return reward(kind(), name="source", lane=name, **anywhere(name, where))


def longer(completion_a: str, completion_b: str) -> float:
    return 0.5 if len(completion_a) == len(completion_b) else float(len(completion_a) > len(completion_b))


@pytest.mark.parametrize("where", WHERE)
@pytest.mark.parametrize("lane", LANES)
def test_samples_of_a_group_are_compared(lane: str, where: str) -> None:
    function = on_lane(longer, lane, name="f", **anywhere(lane, where))
    with dispatcher_on(where, [pairwise(function, schedule="all", score="win_rate")]) as dispatcher:
        for result in scored_and_streamed(dispatcher):
            assert result.rewards.ravel().tolist() == [0.0, 1.0, 1.0, 0.0]


@pytest.mark.parametrize("where", WHERE)
@pytest.mark.parametrize("lane", ["process", "thread", "integers", "asyncio"])
def test_a_gate_is_decided_by_the_finished_value(lane: str, where: str) -> None:
    """Once, whatever else the gate waits for, in batches and in streams."""
    longer = reward(lambda completion: float(len(completion)), name="longer", lane="thread")
    gated = reward(lambda completion: 100.0, name="gated", lane="thread", run_if={"source": ">= 12"}, otherwise=0.0)
    both = reward(lambda completion: 1.0, name="both", lane="thread", run_if={"source": ">= 11", "longer": "< 3"})
    wanted = [
        [11.0, 1.0, 0.0, 1.0],
        [12.0, 2.0, 100.0, 1.0],
        [13.0, 3.0, 100.0, np.nan],
        [11.0, 1.0, 0.0, 1.0],
    ]
    with dispatcher_on(where, [source(lane, where), longer, gated, both]) as dispatcher:
        for result in scored_and_streamed(dispatcher):
            np.testing.assert_array_equal(result.rewards.reshape(4, 4), wanted)
            assert result.skipped == {"gated": (0, 3), "both": (2,)}


def lengths(completions: list[str]) -> list[float]:
    return [float(len(completion)) for completion in completions]


@pytest.mark.parametrize("where", WHERE)
def test_gathered_samples_of_batches_of_different_sizes_have_their_own_values(where: str) -> None:
    with dispatcher_on(where, [reward(lengths, batch_size=16, batch_wait=0.05)]) as dispatcher:
        sizes = [1, 40, 1, 3, 17, 1]
        texts = [[f"{number}" * (index + 1) for index in range(size)] for number, size in enumerate(sizes)]
        pending = [dispatcher.submit(completions=each) for each in texts]
        for each, one in zip(texts, pending, strict=True):
            result = one.result(timeout=60)
            assert result.failures() == []
            assert result.rewards.ravel().tolist() == [float(len(text)) for text in each]


@pytest.mark.parametrize("where", WHERE)
def test_gathered_samples_of_several_additions_to_streams_have_their_own_values(where: str) -> None:
    with dispatcher_on(where, [reward(lengths, batch_size=64, batch_wait=0.3)]) as dispatcher:
        dispatcher.score(completions=["started"])
        streams = [dispatcher.stream(num_generations=2) for _ in range(2)]
        for number in range(2):
            for stream in streams:
                stream.add(completions=["a" * (number + 1), "bbb"])
        for stream in streams:
            stream.finish()
            result = stream.result(timeout=60)
            assert result.rewards.ravel().tolist() == [1.0, 3.0, 2.0, 3.0]
        assert (dispatcher.score(completions=["after"]).status == Status.OK).all()
        if where != "here":
            nodes = dispatcher._engine.get().nodes()
            assert [node["state"] for node in nodes] == ["ready"]


def hangs(completion: str, path: str) -> float:
    if completion == "hangs":
        Path(path).touch()
        while Path(path).exists():  # the test lets its threads go
            time.sleep(0.01)
    return float(len(completion))


async def hangs_on_loop(completion: str, path: str) -> float:
    if completion == "hangs":
        Path(path).touch()  # noqa: ASYNC240
        await asyncio.sleep(60)
    return float(len(completion))


def hanging(lane: str, where: str) -> Any:
    function: Any = hangs_on_loop if lane == "asyncio" else hangs
    return reward(function, lane=lane, name="f", grace=0.1, **anywhere(lane, where))  # type: ignore[call-overload]


@pytest.mark.parametrize("where", WHERE)
@pytest.mark.parametrize("lane", LANES)
def test_a_value_that_had_returned_counts_when_its_batch_is_cut(lane: str, where: str, tmp_path: Path) -> None:
    function = hanging(lane, where)
    with dispatcher_on(where, [function], workers=1) as dispatcher:
        quick = ["a"] * 64  # its cost is known: all calls of a batch stand in one frame
        dispatcher.score(completions=quick, path=[""] * 64)
        for number in range(4):
            began = tmp_path / f"{number}"
            pending = dispatcher.submit(completions=[*COMPLETIONS, "hangs"], path=[str(began)] * 5, num_generations=1)
            if where != "here":  # what is on its way there and back is not counted
                assert len(list(itertools.islice(pending.groups(), 4))) == 4
            while not began.exists():
                time.sleep(0.001)
            pending.cancel()
            result = pending.result(timeout=60)
            began.unlink()
            assert result.status.ravel().tolist() == [Status.OK] * 4 + [Status.CANCELLED]
            assert result.rewards.ravel()[:4].tolist() == [1.0, 2.0, 3.0, 1.0]


@pytest.mark.parametrize("lane", LANES)
@pytest.mark.parametrize(
    ("bound", "where"), [*(("batch_timeout", where) for where in WHERE), ("group_timeout", "node")]
)
def test_a_value_that_had_returned_counts_when_its_time_is_up(
    bound: str, lane: str, where: str, tmp_path: Path
) -> None:
    function = hanging(lane, where)
    with dispatcher_on(where, [function], workers=1) as dispatcher:
        dispatcher.score(completions=["a"] * 64, path=[""] * 64)
        for seconds in (0.3, 2.0, 10.0):  # a busy machine begins late
            began = tmp_path / f"{seconds}"
            columns: dict[str, Any] = {"completions": [*COMPLETIONS, "hangs"], "path": [str(began)] * 5, bound: seconds}
            result = dispatcher.score(**columns, num_generations=5)
            ran = time.time() - began.stat().st_mtime if began.exists() else 0
            began.unlink(missing_ok=True)
            if ran > 0.2:
                break
        assert result.status.ravel().tolist() == [Status.OK] * 4 + [Status.TIMEOUT]
        assert result.rewards.ravel()[:4].tolist() == [1.0, 2.0, 3.0, 1.0]


def records(completion: str, log_extra: Any, log_metric: Any) -> dict[str, Any]:
    log_extra("said", [completion])
    log_metric("length", len(completion))
    return {"score": 1.0, "half": len(completion) / 2}


@pytest.mark.parametrize("where", WHERE)
@pytest.mark.parametrize("lane", LANES)
def test_records_of_a_pure_function_are_on_each_identical_sample(lane: str, where: str) -> None:
    completions = [COMPLETIONS[index % 3] for index in range(60)]
    function = on_lane(records, lane, name="f", pure=True, **anywhere(lane, where))
    with dispatcher_on(where, [function]) as dispatcher:
        result = dispatcher.score(completions=completions)
    assert result.failures() == []
    lengths = [float(len(completion)) for completion in completions]
    assert result.extra == {"said": completions, "f/half": [length / 2 for length in lengths]}
    assert result.metrics == {"length": lengths}

"""Gates and gathered calls mean the same here, on the engine of this host and on a node."""

from __future__ import annotations

from contextlib import AbstractContextManager
from typing import Any

import numpy as np
import pytest

from guerdon import Dispatcher, StatefulReward, Status, reward
from tests.cluster.in_memory import Clustered, InMemoryCluster

WHERE = ["here", "host", "node"]
COMPLETIONS = ["a", "bb", "ccc", "d"]


def dispatcher_on(where: str, functions: list[Any]) -> AbstractContextManager[Dispatcher]:
    options: dict[str, Any] = {"max_failure_rate": 1.0}
    if where == "node":
        return Clustered(functions, InMemoryCluster(2), **options)
    return Dispatcher(functions, workers=2, cluster="host" if where == "host" else None, **options)


class Shaped(StatefulReward):
    """Its score opens no gate of these tests, its finished value does."""

    def score(self, completion: str) -> float:
        return float(len(completion))

    def finish_group(self, scores: list[float | None], **columns: Any) -> list[float | None]:
        return [None if score is None else score + 10 for score in scores]


class ShapedOnLoop(Shaped):
    async def score(self, completion: str) -> float:  # type: ignore[override]
        return float(len(completion))


class ShapedInteger(Shaped):
    def score(self, completion: str) -> int:
        return len(completion)


def source(lane: str, where: str) -> Any:
    kind = {"asyncio": ShapedOnLoop, "integers": ShapedInteger}.get(lane, Shaped)
    anywhere: dict[str, Any] = {"node": "any"} if where == "node" and lane != "process" else {}
    name = {"integers": "thread"}.get(lane, lane)
    return reward(kind(), name="source", lane=name, **anywhere)  # type: ignore[call-overload]


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
        batch = dispatcher.score(completions=COMPLETIONS, num_generations=2)
        stream = dispatcher.stream(num_generations=2)
        for completion in COMPLETIONS:
            stream.add(completions=[completion])
        stream.finish()
        for result in (batch, stream.result(timeout=60)):
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
            assert [node.state for node in nodes] == ["ready"]

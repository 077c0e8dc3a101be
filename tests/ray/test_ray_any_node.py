"""Agents of Ray nodes that run thread and asyncio functions (``node="any"``), and die. Their
process is found by its node, so no other dispatcher has agents meanwhile."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Iterator

import pytest

pytest.importorskip("ray")

from guerdon import Dispatcher, Ray, Status, reward
from guerdon._lanes.remote.ray import cluster as ray_cluster
from tests.ray import rewards
from tests.ray.nodes import OTHERS, Nodes, wait_until_gone

SAMPLES = 240
TEXTS = [str(number) for number in range(SAMPLES)]
PATIENCE_S = 60.0


@pytest.fixture
def dispatcher(cluster: Nodes, monkeypatch: pytest.MonkeyPatch) -> Iterator[Dispatcher]:
    """Its functions run in the agents of all nodes."""
    cluster.make_whole()
    wait_until_gone()
    monkeypatch.setattr(ray_cluster, "LOOK_S", 0.5)
    thread = reward(rewards.act, name="thread", lane="thread", node="any")
    loop = reward(rewards.act_on_loop, name="loop", node="any")
    with Dispatcher([thread, loop], num_generations=1, cluster=Ray(reserve=False, cpus_per_node=1)) as made:
        made.score(completions=["1"], seconds=[0.0], notes=[""])
        _wait_for(made, "ready", "head", *OTHERS)
        yield made
    wait_until_gone()


def _wait_for(dispatcher: Dispatcher, state: str, *names: str) -> None:
    deadline = time.monotonic() + PATIENCE_S
    while any(dispatcher.stats()["nodes"].get(name, {}).get("state") != state for name in names):
        assert time.monotonic() < deadline, dispatcher.stats()["nodes"]
        time.sleep(0.05)


@pytest.mark.whole
@pytest.mark.fault(
    'a Ray agent is killed (SIGKILL) while its threads and its event loop run calls (`node="any"`)',
    sees="a warning: its calls, on the loop all of them, are made elsewhere, and Ray starts another",
)
def test_an_agent_that_runs_threads_and_a_loop_is_killed(cluster: Nodes, dispatcher: Dispatcher) -> None:
    pid = cluster.agent("node-1")
    # 24 threads take 5 s of it, and three loops have all of it at once.
    pending = dispatcher.submit(completions=TEXTS, seconds=[0.5] * SAMPLES, notes=[""] * SAMPLES)
    deadline = time.monotonic() + PATIENCE_S
    while dispatcher.stats()["nodes"]["node-1"]["calls"] < 20:
        assert time.monotonic() < deadline
        assert not pending.done
        time.sleep(0.01)
    os.kill(pid, signal.SIGKILL)
    result = pending.result(timeout=PATIENCE_S)
    assert not result.failures(), result.failures()[:3]
    assert (result.status == Status.OK).all()
    serial = [[2.0 * number] * 2 for number in range(SAMPLES)]
    assert result.rewards.reshape(SAMPLES, 2).tolist() == serial
    _wait_for(dispatcher, "ready", "node-1")
    assert cluster.agent("node-1") != pid

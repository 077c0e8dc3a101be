"""Agents of Ray nodes that run thread and asyncio functions (``node="any"``), and die. Their
process is found by its node, so no other dispatcher has agents meanwhile."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator

import pytest

pytest.importorskip("ray")

from guerdon import Dispatcher, Ray, Status, reward
from guerdon._lanes.remote.ray import cluster as ray_cluster
from tests.clock import eventually
from tests.ray import rewards
from tests.ray.nodes import OTHERS, Nodes, wait_until_gone, wait_until_nodes

SAMPLES = 240


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
        wait_until_nodes(made, "ready", "head", *OTHERS)
        yield made
    wait_until_gone()


@pytest.mark.whole
@pytest.mark.fault(
    'a Ray agent is killed (SIGKILL) while its threads and its event loop run calls (`node="any"`)',
    sees="a warning: its calls, on the loop all of them, are made elsewhere, and Ray starts another",
)
def test_an_agent_that_runs_threads_and_a_loop_is_killed(cluster: Nodes, dispatcher: Dispatcher) -> None:
    pid = cluster.agent("node-1")
    # 24 threads take 5 s of it, and three loops have all of it at once.
    pending = dispatcher.submit(
        completions=[str(number) for number in range(SAMPLES)], seconds=[0.5] * SAMPLES, notes=[""] * SAMPLES
    )
    eventually(lambda: dispatcher.stats()["nodes"]["node-1"]["calls"] >= 20)
    assert not pending.done
    os.kill(pid, signal.SIGKILL)
    result = pending.result(timeout=60)
    assert not result.failures(), result.failures()[:3]
    assert (result.status == Status.OK).all()
    assert result.rewards.reshape(SAMPLES, 2).tolist() == [[2.0 * number] * 2 for number in range(SAMPLES)]
    wait_until_nodes(dispatcher, "ready", "node-1")
    assert cluster.agent("node-1") != pid

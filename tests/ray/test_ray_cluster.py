"""Dispatchers over Ray nodes: values, what runs where, what is shown, and what is refused."""

from __future__ import annotations

import asyncio
import os
import re
import subprocess
import sys
import threading
import warnings
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

pytest.importorskip("ray")

from guerdon import Dispatcher, Ray, RegistrationError, group_reward, reward
from guerdon._lanes.remote.ray import cluster as ray_cluster
from tests.clock import eventually
from tests.ray import rewards
from tests.ray.nodes import OTHERS, Nodes, agents, wait_until_nodes

TEXTS = [str(number) for number in range(300)]
DOUBLED = [2.0 * number for number in range(300)]


@pytest.fixture(scope="module")
def nodes(cluster: Nodes) -> Nodes:
    cluster.make_whole()
    return cluster


@pytest.fixture(scope="module")
def dispatcher(nodes: Nodes) -> Iterator[Dispatcher]:
    """One for the tests that do no harm."""
    offset = 1.0

    @reward(name="closure")
    def closure(completion: str) -> float:
        return 2.0 * float(completion) + offset

    @reward(name="here")
    async def here(completion: str) -> float:
        await asyncio.sleep(0)
        return float(threading.get_native_id() > 0)

    functions = [
        rewards.double_reward,
        closure,
        here,
        reward(rewards.GoodSetup(), name="stateful"),
        group_reward(rewards.ranks, name="ranks"),
        reward(rewards.where, name="where"),
    ]
    with Dispatcher(functions, num_generations=1, cluster=Ray(nodes=("node-1", "node-2", "head"))) as made:
        yield made


def test_values_are_those_of_a_serial_loop(dispatcher: Dispatcher) -> None:
    result = dispatcher.score(completions=TEXTS, num_generations=3)
    assert not result.failures()
    assert result.rewards[..., 0].ravel().tolist() == DOUBLED
    assert result.rewards[..., 1].ravel().tolist() == [value + 1.0 for value in DOUBLED]
    assert set(result.rewards[..., 2].ravel().tolist()) == {1.0}
    assert result.rewards[..., 3].ravel().tolist() == DOUBLED
    assert result.rewards[..., 4].ravel().tolist() == [0.0, 1.0, 2.0] * 100


def test_calls_are_spread_over_the_nodes(dispatcher: Dispatcher) -> None:
    dispatcher.score(completions=["1"])
    parents = {float(agent.pid) for agent in agents()}
    assert len(parents) == 3
    result = dispatcher.score(completions=["0.02"] * 300)
    assert set(result.rewards[..., 5].ravel().tolist()) == parents


def test_stats_and_dump_name_the_nodes(dispatcher: Dispatcher) -> None:
    dispatcher.score(completions=["1"])
    assert {"head", "node-1", "node-2"} <= set(dispatcher.stats()["nodes"])
    pending = dispatcher.submit(completions=["0.5"] * 8)
    eventually(lambda: any(name in str(dispatcher.dump()) for name in ("head", *OTHERS)), seconds=2.0)
    pending.result()


@pytest.mark.usefixtures("nodes")
def test_thread_and_asyncio_functions_run_in_the_agents_of_nodes() -> None:
    thread = reward(rewards.process, name="thread", lane="thread", node="any")
    loop = reward(rewards.process_of_loop, name="loop", node="any")
    stays = reward(rewards.process, name="stays", lane="thread")
    beside = Ray(nodes=("node-1", "node-2"), reserve=False, cpus_per_node=1)
    with Dispatcher([thread, loop, stays], num_generations=1, cluster=beside) as made:
        made.score(completions=["0.02"])
        wait_until_nodes(made, "ready", *OTHERS, seconds=30.0)
        result = made.score(completions=["0.02"] * 60)
        assert not result.failures()
        pids = {float(agent.pid) for agent in agents()}
        of = [set(result.rewards[..., number].ravel().tolist()) for number in range(3)]
        assert of[0] | of[1] <= pids, (of, pids)
        assert len(of[0]) == len(of[1]) == 2, "both nodes run both"
        assert of[2] == {float(os.getpid())}
        assert {"node-1", "node-2"} <= set(made.stats()["nodes"])
        pending = made.submit(completions=["1"] * 4)
        # Not the one that stays: nodes begin theirs a moment later.
        on_node = re.compile(r"'thread' on .* in 'node node-[12]' \(thread\)")
        eventually(lambda: on_node.search(str(made.dump())))
        pending.result()


def _refused(cluster: Ray, match: str, function: object = rewards.double_reward) -> None:
    with Dispatcher([function], cluster=cluster) as dispatcher, pytest.raises(RegistrationError, match=match):
        dispatcher.score(completions=["1"])


@pytest.mark.usefixtures("nodes")
def test_a_node_that_is_missing_is_refused_by_name(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ray_cluster, "_FREE_WAIT_S", 0.5)
    _refused(Ray(nodes=["node-1", "node-9"]), r"no node 'node-9'. It has: head \(")


@pytest.mark.usefixtures("nodes")
def test_more_cpus_than_a_node_has_are_refused() -> None:
    _refused(Ray(cpus_per_node=64), "no room for an agent of 64 CPUs on head, node-1, node-2")


@pytest.mark.whole
@pytest.mark.usefixtures("nodes")
def test_another_cluster_than_the_one_of_this_process_is_refused() -> None:
    _refused(Ray(address="127.0.0.1:1"), "connected to the cluster at")


@pytest.mark.fault("Ray is not running, or not at that address", sees="RegistrationError before any call, at once")
def test_a_cluster_that_can_not_be_reached_is_refused() -> None:
    code = (
        "from guerdon import Dispatcher, Ray\nfrom tests.ray.rewards import double_reward\n"
        "Dispatcher([double_reward], cluster=Ray(address='127.0.0.1:1')).score(completions=['1'])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
    assert "RegistrationError: cluster=guerdon.Ray(…): no Ray cluster answers at 127.0.0.1:1" in done.stderr


@pytest.mark.whole
@pytest.mark.usefixtures("nodes")
@pytest.mark.fault("Ray is to find its cluster, and the head is stopped", sees="RegistrationError within 10 s")
def test_a_stopped_head_that_ray_finds_is_refused() -> None:
    heads = [one for one in psutil.Process().children(recursive=True) if one.name().startswith("gcs_server")]
    assert heads, "it was looked for by a name that it doesn't have"
    code = (
        "from guerdon import Dispatcher, Ray\nfrom guerdon._lanes.remote.ray import connection\n"
        "from tests.ray.rewards import double_reward\nconnection._ANSWER_S = 1\n"
        "Dispatcher([double_reward], cluster=Ray(address='auto')).score(completions=['1'])"
    )
    environment = {name: value for name, value in os.environ.items() if name != "RAY_ADDRESS"}
    try:
        for head in heads:
            head.suspend()
        done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, env=environment)
    finally:
        for head in heads:
            head.resume()
    assert "no Ray cluster was found: what listens there says nothing for 1 s" in done.stderr


@pytest.mark.whole
@pytest.mark.usefixtures("nodes")
@pytest.mark.fault(
    "setup() of a function fails on the nodes",
    sees="RegistrationError with each node's name and the reason, before any call",
)
def test_a_setup_that_fails_is_refused_by_node() -> None:
    bad = reward(rewards.BadSetup(), name="bad")
    _refused(Ray(reserve=False, cpus_per_node=1), r"node node-1: .*'bad' setup\(\) failed: FileNotFoundError", bad)


@pytest.mark.whole
@pytest.mark.fault(
    "a node has another interpreter, without the packages",
    sees="RegistrationError with the node's name and what it lacks",
)
def test_another_python_is_refused_by_node(nodes: Nodes, tmp_path: Path) -> None:
    nodes.add_with_another_python("other", tmp_path)
    try:
        cluster = Ray(nodes=["other", "node-1"], reserve=False, cpus_per_node=1)
        _refused(cluster, r"node other: .*can't import guerdon")
    finally:
        nodes.remove("other")


@pytest.mark.whole
@pytest.mark.usefixtures("nodes")
def test_two_dispatchers_share_a_cluster() -> None:
    cluster = Ray(nodes=["node-1"], reserve=False, cpus_per_node=1)
    with Dispatcher([rewards.double_reward], cluster=cluster) as one:
        with Dispatcher([rewards.double_reward], cluster=cluster) as other:
            for dispatcher in (one, other, one):
                assert dispatcher.score(completions=TEXTS).rewards.ravel().tolist() == DOUBLED
        assert one.score(completions=TEXTS).rewards.ravel().tolist() == DOUBLED


@pytest.mark.whole
@pytest.mark.usefixtures("nodes")
def test_without_a_warning_and_nothing_left() -> None:
    before, threads = {agent.pid for agent in agents()}, threading.active_count()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with Dispatcher([rewards.double_reward], cluster=Ray(reserve=False, cpus_per_node=1)) as dispatcher:
            assert dispatcher.score(completions=TEXTS).rewards.ravel().tolist() == DOUBLED
    eventually(lambda: {agent.pid for agent in agents()} <= before, seconds=10.0)
    assert threading.active_count() <= threads, threading.enumerate()

"""Ray nodes and agents that die, stop or are slow."""

from __future__ import annotations

import os
import signal
import threading
import time
import warnings
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

pytest.importorskip("ray")

from guerdon import Dispatcher, GuerdonWarning, PendingBatch, Ray, RewardBatch, Status, reward
from guerdon._lanes.remote.ray import cluster as ray_cluster
from guerdon._lanes.remote.ray import pump
from tests.clock import eventually
from tests.ray import rewards
from tests.ray.nodes import CPUS, OTHERS, Nodes, agents, wait_until_gone, wait_until_nodes

SAMPLES = 240
TEXTS = [str(number) for number in range(SAMPLES)]
DOUBLED = [2.0 * number for number in range(SAMPLES)]
PATIENCE_S = 60.0


def _dispatcher(**options: object) -> Dispatcher:
    cluster = Ray(reserve=False, cpus_per_node=2, **options)  # type: ignore[arg-type]
    return Dispatcher([reward(rewards.act, max_failure_rate=1.0)], workers=2, cluster=cluster)


@pytest.fixture(scope="module")
def dispatcher(cluster: Nodes) -> Iterator[Dispatcher]:
    """One that goes through one fault after another."""
    cluster.make_whole()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(ray_cluster, "LOOK_S", 0.5)
        with _dispatcher() as made:
            yield made
    wait_until_gone()


@pytest.fixture
def nodes(cluster: Nodes, dispatcher: Dispatcher) -> Nodes:
    """Three nodes with an agent each, whatever the test before did to them."""
    cluster.make_whole()
    _score(dispatcher, ["1"])
    wait_until_nodes(dispatcher, "ready", "head", *OTHERS)
    return cluster


def _submit(dispatcher: Dispatcher, texts: list[str], seconds: float = 0.0, notes: str = "") -> PendingBatch:
    columns = {"seconds": [seconds] * len(texts), "notes": [notes] * len(texts)}
    return dispatcher.submit(completions=texts, num_generations=1, **columns)


def _score(dispatcher: Dispatcher, texts: list[str]) -> RewardBatch:
    return _submit(dispatcher, texts).result(timeout=PATIENCE_S)


def _begin(dispatcher: Dispatcher, seconds: float = 0.05, notes: str = "") -> PendingBatch:
    """A batch in the middle of which harm is done."""
    pending = _submit(dispatcher, TEXTS, seconds, notes)
    time.sleep(0.3)
    assert not pending.done
    return pending


def _expect_whole(pending: PendingBatch) -> None:
    """Every cell has one outcome, that of a serial loop, in time."""
    result = pending.result(timeout=PATIENCE_S)
    assert not result.failures(), result.failures()[:3]
    assert result.rewards.ravel().tolist() == DOUBLED


@pytest.mark.fault(
    "a Ray agent is killed (SIGKILL) in mid-batch",
    sees="a warning: its calls are made elsewhere, and Ray starts another",
)
def test_an_agent_is_killed(nodes: Nodes, dispatcher: Dispatcher) -> None:
    pending = _begin(dispatcher)
    pid = nodes.agent("node-1")
    os.kill(pid, signal.SIGKILL)
    _expect_whole(pending)
    wait_until_nodes(dispatcher, "ready", "node-1")
    assert nodes.agent("node-1") != pid


@pytest.mark.whole
@pytest.mark.fault("a Ray node's raylet is killed in mid-batch", sees="a warning: its calls are made elsewhere")
def test_a_raylet_is_killed(nodes: Nodes, dispatcher: Dispatcher) -> None:
    pending = _begin(dispatcher)
    nodes.kill_raylet("node-1")
    _expect_whole(pending)


@pytest.mark.whole
@pytest.mark.fault(
    "a Ray node is removed and another added in mid-batch", sees="a warning; the new one gets an agent and calls"
)
def test_a_node_goes_and_another_comes(nodes: Nodes, dispatcher: Dispatcher) -> None:
    pending = _begin(dispatcher, seconds=0.2)
    nodes.remove("node-1")
    nodes.add("node-3")
    wait_until_nodes(dispatcher, "ready", "node-3")
    _expect_whole(pending)
    assert _score(dispatcher, TEXTS).rewards.ravel().tolist() == DOUBLED
    assert dispatcher.stats()["nodes"]["node-3"]["ended"] > 0
    nodes.remove("node-3")


@pytest.mark.whole
@pytest.mark.fault(
    "a Ray agent is stopped (SIGSTOP) in mid-batch",
    sees="a warning: it counts as lost after 15 s and is replaced; its calls are made elsewhere",
)
def test_an_agent_is_stopped(nodes: Nodes, dispatcher: Dispatcher, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pump, "SILENCE_S", 3.0)
    monkeypatch.setattr(pump, "_LOOK_AGAIN_S", 1.0)
    _score(dispatcher, TEXTS)
    pid = nodes.agent("node-1")
    pending = _begin(dispatcher)
    os.kill(pid, signal.SIGSTOP)
    _expect_whole(pending)
    wait_until_nodes(dispatcher, "ready", "node-1")
    assert nodes.agent("node-1") != pid


@pytest.mark.whole
@pytest.mark.fault("a Ray node is twenty times slower than the others", sees="nothing: it gets fewer calls")
def test_a_slow_node(nodes: Nodes, dispatcher: Dispatcher) -> None:
    nodes.remove("node-2")
    nodes.add("node-2", env_vars={"SLOW_NODE": "1"})
    try:
        wait_until_nodes(dispatcher, "ready", "node-2")
        before = dispatcher.stats()["nodes"]["node-2"]["ended"]
        _expect_whole(_begin(dispatcher, seconds=0.02))
        # Split evenly, it would take 80 calls of 0.4 s each.
        assert dispatcher.stats()["nodes"]["node-2"]["ended"] - before < 60
    finally:
        nodes.remove("node-2")


@pytest.mark.whole
@pytest.mark.usefixtures("nodes")
@pytest.mark.fault(
    "200 MB of samples go through Ray object stores of 80 MB", sees="nothing: few messages are under way"
)
def test_more_than_the_object_store_holds(dispatcher: Dispatcher) -> None:
    sizes = [(1 << 20) + number for number in range(200)]
    result = _score(dispatcher, ["x" * size for size in sizes])
    assert not result.failures(), result.failures()[:3]
    assert result.rewards.ravel().tolist() == [float(size) for size in sizes]


def _score_with(dispatcher: Dispatcher, deed: str) -> str:
    """One sample among others does `deed`; the reason of its crash. The others are as ever."""
    result = _score(dispatcher, [*TEXTS[:50], deed, *TEXTS[50:100]])
    assert [(failure.sample, failure.status) for failure in result.failures()] == [(50, Status.CRASHED)]
    values = result.rewards.ravel().tolist()
    assert values[:50] + values[51:] == DOUBLED[:100]
    return result.failures()[0].reason


@pytest.mark.usefixtures("nodes")
@pytest.mark.fault(
    "a sample kills its worker on every Ray node", sees="it is `crashed` after two attempts; no other notices"
)
def test_a_sample_that_kills_its_workers(dispatcher: Dispatcher) -> None:
    assert "exit" in _score_with(dispatcher, "exit")


@pytest.mark.whole
@pytest.mark.usefixtures("nodes")
@pytest.mark.fault(
    "a sample kills the agent of each Ray node that it comes to",
    sees="it is `crashed` after three nodes, with their names; no other sample is",
)
def test_a_sample_that_kills_agents(dispatcher: Dispatcher) -> None:
    reason = _score_with(dispatcher, "kill agent")
    assert any(name in reason for name in ("head", *OTHERS)), reason


@pytest.mark.whole
@pytest.mark.fault("a Ray node is preempted or drained", sees="nothing: it is emptied, and no call is made twice")
def test_a_node_that_drains_is_emptied(nodes: Nodes, dispatcher: Dispatcher, tmp_path: Path) -> None:
    pending = _begin(dispatcher, seconds=0.1, notes=str(tmp_path))
    nodes.drain("node-1")
    eventually(lambda: dispatcher.stats()["nodes"].get("node-1", {"state": "gone"})["state"] != "ready")
    _expect_whole(pending)
    runs = Counter((tmp_path / "runs").read_text().split())
    assert set(runs.values()) == {1}
    nodes.remove("node-1")


@pytest.mark.fault("SIGTERM ends a Ray node's raylet in mid-batch", sees="a warning: its calls are made elsewhere")
def test_a_raylet_gets_sigterm(nodes: Nodes, dispatcher: Dispatcher) -> None:
    pending = _begin(dispatcher)
    os.kill(nodes.raylet("node-1"), signal.SIGTERM)
    _expect_whole(pending)
    nodes.remove("node-1")


@pytest.mark.whole
@pytest.mark.usefixtures("nodes")
@pytest.mark.fault(
    "Ray agents are killed at random for as long as it takes to score 3000 cells (10⁵ in the soak)",
    sees="every cell has one outcome, that of a serial loop unless three agents were lost under it",
)
@pytest.mark.parametrize("cells", [3000, pytest.param(100_000, marks=[pytest.mark.soak, pytest.mark.timeout(1200)])])
def test_chaos(dispatcher: Dispatcher, cells: int) -> None:
    ended = threading.Event()
    kills: list[int] = []

    def harm() -> None:
        while not ended.wait(2.0):
            alive = agents()
            if len(alive) == 3:  # one is left to finish
                alive[len(kills) % 3].kill()
                kills.append(1)

    statuses: Counter[Status] = Counter()
    harming = threading.Thread(target=harm)
    harming.start()
    try:
        for start in range(0, cells, 500):
            numbers = range(start, start + 500)
            seconds = 0.01 if cells < 10_000 else 0.005
            result = _submit(dispatcher, [str(number) for number in numbers], seconds).result(timeout=PATIENCE_S)
            found = [Status(status) for status in result.status.ravel().tolist()]
            statuses.update(found)
            for number, value, status in zip(numbers, result.rewards.ravel().tolist(), found, strict=True):
                assert status != Status.OK or value == 2.0 * number
    finally:
        ended.set()
        harming.join()
    assert statuses.total() == cells
    assert kills
    assert set(statuses) <= {Status.OK, Status.CRASHED}
    assert statuses[Status.OK] > 0.99 * cells


@pytest.mark.whole
def test_a_dispatcher_right_after_another_finds_all_cpus(nodes: Nodes) -> None:
    """Ray sees a moment later that the agents of the first have ended."""
    for _ in range(2):
        with Dispatcher([rewards.double_reward], num_generations=1, cluster=Ray(nodes=OTHERS)) as dispatcher:
            dispatcher.score(completions=["1"])
            assert [node["slots"] for node in dispatcher.stats()["nodes"].values()] == [CPUS, CPUS]


def test_a_closed_dispatcher_leaves_nothing(dispatcher: Dispatcher) -> None:
    """After all that was killed above."""
    dispatcher.close()
    wait_until_gone()
    assert not [thread.name for thread in threading.enumerate() if "guerdon-" in thread.name]


@pytest.mark.fault("all Ray nodes are lost", sees="a warning for each, and one that workers of this machine take over")
def test_all_nodes_are_lost(cluster: Nodes) -> None:
    cluster.make_whole()
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        with _dispatcher(nodes=OTHERS) as dispatcher:
            _score(dispatcher, ["1"])
            pending = _begin(dispatcher)
            cluster.kill_raylet("node-1")
            cluster.kill_raylet("node-2")
            _expect_whole(pending)
            assert _score(dispatcher, TEXTS).rewards.ravel().tolist() == DOUBLED
    ours = [str(warning.message) for warning in caught if issubclass(warning.category, GuerdonWarning)]
    lost = [message for message in ours if "was lost" in message]
    assert {name for name in OTHERS if any(name in message for message in lost)} == set(OTHERS)
    assert len(ours) - len(lost) <= 1, ours

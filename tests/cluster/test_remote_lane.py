"""Calls on nodes give what they give here, over links in memory."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import guerdon
from guerdon import RewardFunction, Status, reward
from guerdon._functions.build import spec_of
from guerdon._lanes.remote.snapshots import nodes_of
from tests.clock import eventually
from tests.cluster import functions
from tests.cluster.in_memory import ClusterDispatcher, InMemoryCluster, errors
from tests.contract.scripted_batches import DEADLY, check, examples, scripted, scripts
from tests.contract.scripted_functions import EVERY_LANE
from tests.monitor import reading
from tests.monitor.reading import value


def anywhere(function: Any) -> Any:
    """The same function; on nodes it runs in agents, if its lane is not that of processes."""
    if spec_of(function).lane == "process":
        return function
    if not isinstance(function, RewardFunction):
        return reward(function, node="any")
    return RewardFunction(function.__wrapped__, replace(function.options, node="any"), function.spec.shape)


EVERYWHERE = [anywhere(function) for function in EVERY_LANE]


@pytest.fixture(scope="module")
def nodes() -> Iterator[guerdon.Dispatcher]:
    with ClusterDispatcher(EVERYWHERE, InMemoryCluster(1, 2), max_failure_rate=1) as made:
        yield made


@examples(8)
@given(
    script=scripts(EVERYWHERE, DEADLY, most=8),
    seed=st.none() | st.integers(0, 2**32),
    producers=st.integers(1, 3),
)
def test_calls_of_every_lane_give_what_a_serial_loop_gives(
    nodes: guerdon.Dispatcher, tmp_path_factory: pytest.TempPathFactory, script: Any, seed: int | None, producers: int
) -> None:
    """On nodes alone: no worker is started here."""
    before = sum(node["ended"] for node in nodes._engine.get().nodes())
    check(nodes, scripted(EVERYWHERE, script, tmp_path_factory.getbasetemp()), seed, producers)
    found = nodes._engine.get().nodes()
    assert [(node["name"], node["state"], node["slots"]) for node in found] == [("a", "ready", 1), ("b", "ready", 2)]
    prompts, size, _ = script
    # Four functions are called for each sample; calls on groups and lists come on top.
    assert sum(node["ended"] for node in found) - before >= 4 * prompts * size
    assert not nodes._engine.get().worker_pids()
    assert [nodes_of(nodes._engine.get())[name]["abandoned_threads"] for name in "ab"] == [0, 0]


def test_a_setup_that_fails_comes_with_its_traceback() -> None:
    with ClusterDispatcher([functions.NoSetup()], InMemoryCluster(1), max_failure_rate=1) as dispatcher:
        batch = dispatcher.score(prompts=["p"] * 4, completions=["a"] * 4, num_generations=2)
        first = batch.failures()[0]
        assert first.status == Status.ERROR
        assert "no model here" in first.reason
        assert "in setup" in (first.traceback or "")


def test_timeouts_and_deaths_are_those_of_the_node() -> None:
    both = [functions.sometimes_hangs, functions.sometimes_dies]
    texts = ["hang", "die", "a", "b"] * 2
    with ClusterDispatcher(both, InMemoryCluster(1, 1), max_failure_rate=1) as dispatcher:
        batch = dispatcher.score(prompts=["p"] * 8, completions=texts, num_generations=4)
        status = batch.status.reshape(-1, 2)
        assert [Status(one) for one in status[:, 0]] == [Status.TIMEOUT, Status.OK, Status.OK, Status.OK] * 2
        assert [Status(one) for one in status[:, 1]] == [Status.OK, Status.CRASHED, Status.OK, Status.OK] * 2
        reasons = [one.reason for one in batch.failures() if one.function == "sometimes_dies"]
        assert all("exited with status 3 on node '" in reason and "before that on '" in reason for reason in reasons), (
            reasons
        )


def test_a_node_that_does_not_answer_is_named_with_the_reason() -> None:
    cluster = InMemoryCluster(1)
    with ClusterDispatcher([functions.sometimes_hangs], cluster, max_failure_rate=1) as dispatcher:
        dispatcher.score(prompts=["p"], completions=["a"], num_generations=1)
        pending = dispatcher.submit(prompts=["p"], completions=["hang"], num_generations=1)
        eventually(dispatcher.dump)
        cluster.stop_delivery("a")
        eventually(lambda: dispatcher.dump(0.1))
        call = dispatcher.dump(0.1)[0]
        cluster.go_on("a")
        pending.result(timeout=60)
    assert (call.worker, call.stack) == ("node a", None)
    assert "no stack: its node did not answer in time" in str(call)


def test_metrics_and_the_live_state_name_the_nodes(capfd: pytest.CaptureFixture[str]) -> None:
    cluster = InMemoryCluster(1, 2)
    with ClusterDispatcher([functions.slow], cluster, metrics_port=0) as dispatcher:
        dispatcher.score(prompts=["p"] * 64, completions=["ab"] * 64, num_generations=8)
        found = reading.series(reading.families(reading.text(dispatcher)))
        per_node = {node: {"node": node} for node in "ab"}
        assert [value(found, "guerdon_node_state", **one) for one in per_node.values()] == [1, 1]
        assert [value(found, "guerdon_node_slots", **one) for one in per_node.values()] == [1, 2]
        assert sum(value(found, "guerdon_node_calls_total", **one) for one in per_node.values()) == 64
        assert value(found, "guerdon_nodes_lost_total") == 0
        shown = {node["name"]: node for node in reading.state(dispatcher)["nodes"]}
        assert (shown["b"]["state"], shown["b"]["slots"], shown["b"]["calls"]) == ("ready", 2, 0)
        cluster.kill("a", "cable cut")
        dispatcher.score(prompts=["p"] * 8, completions=["ab"] * 8, num_generations=8)
        found = reading.series(reading.families(reading.text(dispatcher)))
        assert not [key for key in found if ("node", "a") in key[1]], "lost nodes have no series"
        assert value(found, "guerdon_nodes_lost_total") == 1
    assert "cable cut" in capfd.readouterr().err


def test_output_of_workers_is_printed_with_their_node(capfd: pytest.CaptureFixture[str]) -> None:
    with ClusterDispatcher([functions.printing], InMemoryCluster(1)) as dispatcher:
        dispatcher.score(prompts=["p"] * 2, completions=["one", "two"], num_generations=2)
        err = errors(capfd, lambda err: err.count("scoring") >= 2)
    lines = [line for line in err.splitlines() if "scoring" in line]
    assert len(lines) == 2, err
    assert all(line.startswith("[guerdon a: printing ") for line in lines), lines


def test_a_drained_node_goes_and_its_calls_run_on_others() -> None:
    cluster = InMemoryCluster(1, 1)
    with ClusterDispatcher([functions.slow], cluster) as dispatcher:
        pending = dispatcher.submit(prompts=["p"] * 64, completions=["ab"] * 64, num_generations=8)
        next(iter(pending.groups()))
        dispatcher._engine.get().drain_node("a")
        assert (pending.result(timeout=60).rewards == 2).all()
        assert [node["name"] for node in dispatcher._engine.get().nodes()] == ["b"]
        with pytest.raises(ValueError, match="no node 'a'"):
            dispatcher._engine.get().drain_node("a")
        cluster.agents.pop("a").close()
        cluster.add("a", 1)
        again = dispatcher.score(prompts=["p"] * 16, completions=["abc"] * 16, num_generations=8)
        assert (again.rewards == 3).all()

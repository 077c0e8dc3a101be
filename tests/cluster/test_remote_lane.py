"""Calls on nodes give what they give here, over links in memory."""

from __future__ import annotations

import re
import time
from typing import Any

import numpy as np
import pytest

import guerdon
from guerdon import Status
from tests.cluster import functions
from tests.cluster.in_memory import Clustered, InMemoryCluster
from tests.monitor import reading
from tests.monitor.reading import value

TEXTS = ["x" * (index % 37) + ("?" if index % 11 == 0 else "") + ("ä€"[: index % 3]) for index in range(256)]
ALL: list[Any] = [
    functions.length,
    functions.fickle,
    functions.ranks,
    functions.of_lists,
    functions.gathered,
    functions.Prefixed(),
    functions.recorded,
]


def _score(dispatcher: guerdon.Dispatcher) -> guerdon.RewardBatch:
    extra = [None if index % 2 else {"index": index} for index in range(len(TEXTS))]
    return dispatcher.score(prompts=["p"] * len(TEXTS), completions=TEXTS, extra=extra, num_generations=8)


def _content(batch: guerdon.RewardBatch) -> tuple[Any, ...]:
    failures = [(one.function, one.sample, one.status, one.reason, one.attempts) for one in batch.failures()]
    return batch.rewards, batch.status, failures


def test_every_kind_of_call_gives_what_it_gives_here() -> None:
    with guerdon.Dispatcher(ALL, workers=2, max_failure_rate=1) as here:
        wanted = _content(_score(here))
    cluster = InMemoryCluster(1, 2)
    with Clustered(ALL, cluster, max_failure_rate=1) as elsewhere:
        for _ in range(2):
            rewards, status, failures = _content(_score(elsewhere))
            np.testing.assert_array_equal(rewards, wanted[0])
            np.testing.assert_array_equal(status, wanted[1])
            assert failures == wanted[2]
        nodes = elsewhere._engine.get().nodes()
        assert [(node.name, node.state, node.slots) for node in nodes] == [("a", "ready", 1), ("b", "ready", 2)]
        assert sum(node.ended for node in nodes) >= 2 * len(TEXTS) * 3
        assert not elsewhere._engine.get().worker_pids(), "no worker is started here"


def test_a_setup_that_fails_comes_with_its_traceback() -> None:
    with Clustered([functions.NoSetup()], InMemoryCluster(1), max_failure_rate=1) as dispatcher:
        batch = dispatcher.score(prompts=["p"] * 4, completions=["a"] * 4, num_generations=2)
        first = batch.failures()[0]
        assert first.status == Status.ERROR
        assert "no model here" in first.reason
        assert "in setup" in (first.traceback or "")


def test_timeouts_and_deaths_are_those_of_the_node() -> None:
    both = [functions.sometimes_hangs, functions.sometimes_dies]
    texts = ["hang", "die", "a", "b"] * 4
    with Clustered(both, InMemoryCluster(1, 1), max_failure_rate=1) as dispatcher:
        batch = dispatcher.score(prompts=["p"] * 16, completions=texts, num_generations=4)
        status = batch.status.reshape(-1, 2)
        assert [Status(one) for one in status[:, 0]] == [Status.TIMEOUT, Status.OK, Status.OK, Status.OK] * 4
        assert [Status(one) for one in status[:, 1]] == [Status.OK, Status.CRASHED, Status.OK, Status.OK] * 4
        reasons = [one.reason for one in batch.failures() if one.function == "sometimes_dies"]
        assert all("exited with status 3 on node '" in reason and "before that on '" in reason for reason in reasons), (
            reasons
        )


def test_without_a_node_calls_run_here_and_one_warning_says_so(capfd: pytest.CaptureFixture[str]) -> None:
    cluster = InMemoryCluster(2)
    with Clustered([functions.slow], cluster, workers=2) as dispatcher:
        pending = dispatcher.submit(prompts=["p"] * 64, completions=["ab"] * 64, num_generations=8)
        next(iter(pending.groups()))
        cluster.kill("a", "cable cut")
        batch = pending.result(timeout=60)
        assert (batch.status == Status.OK).all()
        assert (batch.rewards == 2).all()
    err = capfd.readouterr().err
    assert err.count("Node 'a' was lost: cable cut.") == 1, err
    assert err.count("No node is left") == 1, err


def test_a_dump_names_the_node_of_a_call() -> None:
    with Clustered([functions.sometimes_hangs], InMemoryCluster(1), max_failure_rate=1) as dispatcher:
        pending = dispatcher.submit(prompts=["p"] * 2, completions=["hang", "a"], num_generations=2)
        end = time.monotonic() + 60
        while not (dump := dispatcher.dump()) and time.monotonic() < end:
            time.sleep(0.01)
        assert [(call.function, call.worker) for call in dump] == [("sometimes_hangs", "node a")]
        assert "in 'node a' (process)" in str(dump)
        assert dump.nodes.keys() == {"a"}
        assert re.search(r"^node a: ready, has [12] calls? of this dispatcher$", str(dump), re.MULTILINE), dump
        pending.result(timeout=60)


def _first_call(dispatcher: guerdon.Dispatcher, timeout: float = 1.0, stands: str = "") -> guerdon.InFlight:
    """What a dump shows first, once there is something that stands there."""
    end = time.monotonic() + 60
    while time.monotonic() < end:
        for call in dispatcher.dump(timeout):
            if stands in (call.stack or ""):
                return call
        time.sleep(0.01)
    raise AssertionError(dispatcher.dump(timeout))


def test_a_dump_shows_where_a_call_of_a_node_stands() -> None:
    with Clustered([functions.sometimes_hangs], InMemoryCluster(1, 1), max_failure_rate=1) as dispatcher:
        pending = dispatcher.submit(prompts=["p"] * 2, completions=["hang", "hang"], num_generations=2)
        call = _first_call(dispatcher, stands="time.sleep(60)")  # not in what comes before the call
        pending.result(timeout=60)
    assert call.worker in ("node a", "node b")
    assert f'File "{functions.__file__}", line ' in (call.stack or ""), call


def test_a_node_that_does_not_answer_is_named_with_the_reason() -> None:
    cluster = InMemoryCluster(1)
    with Clustered([functions.sometimes_hangs], cluster, max_failure_rate=1) as dispatcher:
        dispatcher.score(prompts=["p"], completions=["a"], num_generations=1)
        pending = dispatcher.submit(prompts=["p"], completions=["hang"], num_generations=1)
        _first_call(dispatcher)
        cluster.stop_delivery("a")
        call = _first_call(dispatcher, 0.1)
        cluster.go_on("a")
        pending.result(timeout=60)
    assert (call.worker, call.stack) == ("node a", None)
    assert "no stack: its node did not answer in time" in str(call)


def test_metrics_and_the_live_state_name_the_nodes(capfd: pytest.CaptureFixture[str]) -> None:
    cluster = InMemoryCluster(1, 2)
    with Clustered([functions.slow], cluster, metrics_port=0) as dispatcher:
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
    with Clustered([functions.printing], InMemoryCluster(1)) as dispatcher:
        dispatcher.score(prompts=["p"] * 2, completions=["one", "two"], num_generations=2)
        end, err = time.monotonic() + 60, ""
        while err.count("scoring") < 2 and time.monotonic() < end:
            time.sleep(0.01)
            err += capfd.readouterr().err
    lines = [line for line in err.splitlines() if "scoring" in line]
    assert len(lines) == 2, err
    assert all(line.startswith("[guerdon a: printing ") for line in lines), lines


def test_a_drained_node_goes_and_its_calls_run_on_others() -> None:
    cluster = InMemoryCluster(1, 1)
    with Clustered([functions.slow], cluster) as dispatcher:
        pending = dispatcher.submit(prompts=["p"] * 64, completions=["ab"] * 64, num_generations=8)
        next(iter(pending.groups()))
        dispatcher._engine.get().drain_node("a")
        assert (pending.result(timeout=60).rewards == 2).all()
        assert [node.name for node in dispatcher._engine.get().nodes()] == ["b"]
        with pytest.raises(ValueError, match="no node 'a'"):
            dispatcher._engine.get().drain_node("a")
        cluster.agents.pop("a").close()
        cluster.add("a", 1)
        again = dispatcher.score(prompts=["p"] * 16, completions=["abc"] * 16, num_generations=8)
        assert (again.rewards == 3).all()

"""Calls on nodes give what they give here, over links in memory."""

from __future__ import annotations

import re
import time
from typing import Any

import numpy as np
import pytest

import guerdon
from guerdon import Status
from guerdon._lanes.remote.snapshots import nodes_of
from tests.cluster import any_functions, functions
from tests.cluster.functions import TEXTS
from tests.cluster.in_memory import Clustered, InMemoryCluster
from tests.monitor import reading
from tests.monitor.reading import value

OF_PROCESSES: list[Any] = [
    functions.length,
    functions.fickle,
    functions.ranks,
    functions.of_lists,
    functions.gathered,
    functions.Prefixed(),
    functions.recorded,
]


OF_ANY_LANE: list[Any] = [
    any_functions.threaded,
    any_functions.on_loop,
    any_functions.thread_ranks,
    any_functions.loop_ranks,
    any_functions.thread_gathered,
    any_functions.loop_gathered,
    any_functions.prefixed,
    any_functions.loop_prefixed,
    any_functions.recorded,
    any_functions.loop_recorded,
    functions.length,
]


def _score(dispatcher: guerdon.Dispatcher) -> guerdon.RewardBatch:
    extra = [None if index % 2 else {"index": index} for index in range(len(TEXTS))]
    return dispatcher.score(prompts=["p"] * len(TEXTS), completions=TEXTS, extra=extra, num_generations=8)


def _content(batch: guerdon.RewardBatch) -> tuple[Any, ...]:
    failures = [(one.function, one.sample, one.status, one.reason, one.attempts) for one in batch.failures()]
    return batch.rewards, batch.status, failures, batch.extra


@pytest.mark.parametrize(("made", "per_sample"), [(OF_PROCESSES, 3), (OF_ANY_LANE, 7)], ids=["processes", "any lane"])
def test_every_kind_of_call_gives_what_it_gives_here(made: list[Any], per_sample: int) -> None:
    """So many calls end on nodes for each sample; those on groups and lists come on top."""
    with guerdon.Dispatcher(made, workers=2, max_failure_rate=1) as here:
        wanted = _content(_score(here))
    with Clustered(made, InMemoryCluster(1, 2), max_failure_rate=1) as elsewhere:
        for _ in range(2):
            rewards, status, failures, extra = _content(_score(elsewhere))
            np.testing.assert_array_equal(rewards, wanted[0])
            np.testing.assert_array_equal(status, wanted[1])
            assert failures == wanted[2]
            assert extra == wanted[3]
        nodes = elsewhere._engine.get().nodes()
        assert [(node.name, node.state, node.slots) for node in nodes] == [("a", "ready", 1), ("b", "ready", 2)]
        assert sum(node.ended for node in nodes) >= 2 * len(TEXTS) * per_sample
        assert not elsewhere._engine.get().worker_pids(), "no worker is started here"
        assert [nodes_of(elsewhere._engine.get())[name]["abandoned_threads"] for name in "ab"] == [0, 0]


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


def _first_call(dispatcher: guerdon.Dispatcher, timeout: float = 1.0, stands: str = "") -> guerdon.InFlight:
    """What a dump shows first, once there is something that stands there."""
    end = time.monotonic() + 60
    while time.monotonic() < end:
        for call in dispatcher.dump(timeout):
            if stands in (call.stack or ""):
                return call
        time.sleep(0.01)
    raise AssertionError(dispatcher.dump(timeout))


def test_a_dump_names_the_node_of_a_call_and_shows_where_it_stands() -> None:
    with Clustered([functions.sometimes_hangs], InMemoryCluster(1), max_failure_rate=1) as dispatcher:
        pending = dispatcher.submit(prompts=["p"] * 2, completions=["hang", "a"], num_generations=2)
        _first_call(dispatcher, stands="time.sleep(60)")  # not in what comes before the call
        dump = dispatcher.dump()
        pending.result(timeout=60)
    assert [(call.function, call.worker) for call in dump] == [("sometimes_hangs", "node a")]
    assert f'File "{functions.__file__}", line ' in (dump[0].stack or ""), dump
    assert "in 'node a' (process)" in str(dump)
    assert dump.nodes.keys() == {"a"}
    assert re.search(r"^node a: ready, has [12] calls? of this dispatcher$", str(dump), re.MULTILINE), dump


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

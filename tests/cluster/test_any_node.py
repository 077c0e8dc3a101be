"""Thread and asyncio functions with ``node="any"``: on nodes they give what they give here."""

from __future__ import annotations

import re
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import guerdon
from guerdon import RegistrationError, Status, _native
from guerdon._engine.handle import _functions
from guerdon._lanes import gil
from guerdon._lanes.remote.agent import NodeAgent
from guerdon._lanes.remote.engine_setup import pack
from guerdon._lanes.remote.ray.functions_check import check_functions
from guerdon._lanes.remote.snapshots import nodes_of
from tests.clock import eventually
from tests.cluster import functions
from tests.cluster.in_memory import ClusterDispatcher, InMemoryCluster, errors
from tests.monitor import reading
from tests.monitor.reading import value


@pytest.fixture
def leave() -> Iterator[Any]:
    """Calls that wait for it end with the test at the latest."""
    functions.leave.clear()
    yield functions.leave
    functions.leave.set()


def _node(dispatcher: guerdon.Dispatcher, name: str) -> dict[str, Any]:
    return nodes_of(dispatcher._engine.get())[name]


def _ended(dispatcher: guerdon.Dispatcher) -> int:
    return sum(node["ended"] for node in dispatcher._engine.get().nodes())


@pytest.mark.fault(
    "the last node is lost under functions of any lane",
    sees="they run where the driver does, with one warning",
)
@pytest.mark.parametrize("function", [functions.slow, functions.slow_in_thread, functions.slow_on_loop])
def test_without_a_node_calls_run_here(function: Any, capfd: pytest.CaptureFixture[str]) -> None:
    cluster = InMemoryCluster(1)
    with ClusterDispatcher([function], cluster, workers=2) as dispatcher:
        pending = dispatcher.submit(prompts=["p"] * 64, completions=["ab"] * 64, num_generations=8)
        next(iter(pending.groups()))
        cluster.kill("a", "cable cut")
        batch = pending.result(timeout=60)
        assert (batch.status == Status.OK).all()
        assert (batch.rewards == 2).all()
        assert bool(dispatcher._engine.get().worker_pids()) is (function is functions.slow)
        again = dispatcher.score(prompts=["p"] * 16, completions=["abc"] * 16, num_generations=8)
        assert (again.rewards == 3).all()
        cluster.add("b", 1)
        dispatcher.score(prompts=["p"] * 16, completions=["abc"] * 16, num_generations=8)
    err = capfd.readouterr().err
    assert err.count("Node 'a' was lost: cable cut.") == 1, err
    assert err.count("No node is left") == 1, err


@pytest.mark.fault(
    "a thread function hangs on a node, and an asyncio function there ignores its end",
    sees="timeouts as here; warnings with the node's name, and the count of abandoned threads",
)
def test_timeouts_hold_on_nodes_and_abandoned_threads_are_reported_with_the_node(
    capfd: pytest.CaptureFixture[str],
) -> None:
    both: list[Any] = [functions.hangs_in_thread, functions.ignores_its_end]
    with ClusterDispatcher(both, InMemoryCluster(1), max_failure_rate=1, metrics_port=0) as dispatcher:
        texts = ["hang", "a", "b", "c"]
        begun = time.monotonic()
        batch = dispatcher.score(prompts=["p"] * 4, completions=texts, num_generations=4)
        assert time.monotonic() - begun < 60
        status = batch.status.reshape(-1, 2)
        assert [Status(one) for one in status[0]] == [Status.TIMEOUT, Status.TIMEOUT]
        assert (status[1:] == Status.OK).all()
        eventually(lambda: _node(dispatcher, "a")["abandoned_threads"] or not _again(dispatcher))
        found = reading.series(reading.families(reading.text(dispatcher)))
        assert value(found, "guerdon_node_calls_total", node="a") >= 8
        assert value(found, "guerdon_node_abandoned_threads", node="a") >= 1
        err = errors(capfd, lambda err: "ignores its cancellation" in err)
    assert "Node 'a': reward function 'hangs_in_thread' ran past its timeout of 2 s" in err, err
    assert "Node 'a': reward function 'ignores_its_end' ignores its cancellation" in err, err


def _again(dispatcher: guerdon.Dispatcher) -> bool:
    """The counts of a node come with its answers, once a second while it has calls."""
    dispatcher.score(prompts=["p"] * 4, completions=["hang", "a", "b", "c"], num_generations=4)
    return True


def test_a_dump_shows_the_node_and_where_a_call_stands(leave: Any) -> None:
    three: list[Any] = [functions.waits_for_leave, functions.awaits_leave, functions.sometimes_hangs]
    with ClusterDispatcher(three, InMemoryCluster(1), max_failure_rate=1) as dispatcher:
        pending = dispatcher.submit(prompts=["p"] * 2, completions=["hang", "a"], num_generations=2)
        # The stack of the one in a worker is of the call, not of what comes before it.
        places = {"leave.wait(200)": 2, "asyncio.sleep(0.01)": 2, "time.sleep(60)": 1}
        dumps: list[guerdon.Dump] = []

        def is_shown() -> bool:
            dumps.append(dispatcher.dump())
            return all(str(dumps[-1]).count(place) == count for place, count in places.items())

        eventually(is_shown)
        dump = dumps[-1]
        leave.set()
        pending.cancel()
    assert sorted((call.function, call.worker, call.lane) for call in dump) == [
        *[("awaits_leave", "node a", "asyncio")] * 2,
        ("sometimes_hangs", "node a", "process"),  # the other waits for the worker
        *[("waits_for_leave", "node a", "thread")] * 2,
    ]
    (stack,) = (call.stack for call in dump if call.lane == "process")
    assert f'File "{functions.__file__}", line ' in (stack or ""), dump
    assert "in 'node a' (process)" in str(dump)
    assert dump.nodes.keys() == {"a"}
    assert re.search(r"^node a: ready, has [56] calls of this dispatcher$", str(dump), re.MULTILINE), dump


@pytest.mark.fault(
    "a value that a node can't unpickle, for functions of its threads and loops", sees="an error for these calls alone"
)
def test_values_that_a_node_cannot_read_fail_their_calls_alone() -> None:
    three: list[Any] = [functions.threaded_extra, functions.loop_extra, functions.loop_group_extra]
    extra = [functions.Unreadable() if index == 5 else index for index in range(64)]
    texts: dict[str, list[str]] = {"prompts": ["p"] * 64, "completions": ["ab"] * 64}
    with ClusterDispatcher([*three, functions.slow_in_thread], InMemoryCluster(1), max_failure_rate=1) as dispatcher:
        batch = dispatcher.score(**texts, extra=extra, num_generations=4)
        failed = sorted((one.function, one.sample, one.status) for one in batch.failures())
        assert failed == [
            ("loop_extra", 5, Status.ERROR),
            *[("loop_group_extra", sample, Status.ERROR) for sample in (4, 5, 6, 7)],
            ("threaded_extra", 5, Status.ERROR),
        ]
        assert all("not on this machine" in failure.reason for failure in batch.failures())
        again = dispatcher.score(**texts, extra=[1] * 64, num_generations=4)
        assert (again.status == Status.OK).all()


def test_a_value_that_hangs_a_thread_of_a_node_times_out_alone() -> None:
    extra = [functions.Unreadable(hangs=True) if index == 5 else index for index in range(64)]
    with ClusterDispatcher([functions.threaded_extra], InMemoryCluster(1), max_failure_rate=1) as dispatcher:
        batch = dispatcher.score(completions=["ab"] * 64, extra=extra)
        assert [(one.sample, one.status) for one in batch.failures()] == [(5, Status.TIMEOUT)]


@pytest.mark.fault(
    "a thread function can't be imported on a node", sees="a refusal before any call, with the function and the reason"
)
def test_a_function_that_a_node_cannot_load_is_named_before_any_call(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "only_here.py").write_text("def score(completion):\n    return 1.0\n")
    monkeypatch.syspath_prepend(tmp_path)
    module = __import__("only_here")
    taken: list[NodeAgent] = []

    class Gone(InMemoryCluster):
        def add(self, name: str, workers: int) -> None:
            assert self._setup is not None
            (tmp_path / "only_here.py").unlink()
            sys.modules.pop("only_here")
            taken.append(NodeAgent(self._setup.data, workers=workers))
            with pytest.raises(RegistrationError, match=r"reward function 'score' .*No module named 'only_here'"):
                check_functions(taken[0], 60)
            taken[0].connect("driver")

    function = guerdon.reward(module.score, lane="thread", node="any")
    with ClusterDispatcher([function], Gone(1)) as dispatcher, pytest.raises(RegistrationError) as raised:
        dispatcher.score(prompts=["p"], completions=["a"], num_generations=1)
    assert "reward function 'score' (node='any') could not be loaded in the agent" in str(raised.value)
    assert "only_here" in str(raised.value)


def test_an_agent_that_needs_a_gil_that_is_kept_off_starts_no_engine(monkeypatch: pytest.MonkeyPatch) -> None:
    specs = guerdon.Dispatcher([functions.slow_in_thread])._specs
    agent = NodeAgent(pack(specs, {}, None, _functions(specs, {}, for_nodes=True)).data, workers=1)
    monkeypatch.setattr(gil, "is_mended", lambda: False)
    monkeypatch.setattr(gil, "has_gil", lambda: False)
    monkeypatch.setattr(gil, "_SAFE", (3, 11))
    monkeypatch.setattr(_native, "Agent", lambda config: pytest.fail("it was made"))
    with pytest.raises(guerdon.GuerdonError, match="gh-153809"):
        agent.connect("driver")


def test_functions_without_it_stay_on_the_driver() -> None:
    stays = guerdon.reward(lambda completion: float(len(completion)), name="stays", lane="thread")
    with ClusterDispatcher([stays, functions.slow_in_thread], InMemoryCluster(1)) as dispatcher:
        batch = dispatcher.score(prompts=["p"] * 8, completions=["ab"] * 8, num_generations=4)
        assert (batch.rewards == 2).all()
        assert _ended(dispatcher) == 8


def test_a_limit_holds_over_all_nodes() -> None:
    limited = guerdon.reward(
        functions.slow_on_loop.__wrapped__, name="limited", limit=guerdon.Limit(concurrency=3), node="any"
    )
    most = 0
    with ClusterDispatcher([limited], InMemoryCluster(1, 1)) as dispatcher:
        pending = dispatcher.submit(prompts=["p"] * 24, completions=["ab"] * 24, num_generations=8)
        while not pending.done:
            most = max(most, sum(node["calls"] for node in dispatcher._engine.get().nodes()))
            time.sleep(0.002)
        assert (pending.result(timeout=60).status == Status.OK).all()
    assert most <= 3


@pytest.mark.parametrize(
    ("options", "why"),
    [
        ({"lane": "thread", "node": "all"}, "node='all': expected 'any'"),
        ({"lane": "process", "node": "any"}, "thread and asyncio lanes"),
        ({"node": "any"}, "thread and asyncio lanes"),
    ],
)
def test_wrong_options_are_refused(options: dict[str, Any], why: str) -> None:
    with pytest.raises(RegistrationError, match=why):
        guerdon.reward(lambda completion: 1.0, name="f", **options)


def test_process_bound_functions_are_refused() -> None:
    def with_environment(completion: str, environment: Any) -> float:
        return 1.0

    with pytest.raises(RegistrationError, match="live environments"):
        guerdon.reward(with_environment, node="any")
    lock = __import__("threading").Lock()

    def holds_a_lock(completion: str) -> float:
        with lock:
            return 1.0

    with pytest.raises(guerdon.SerializationError, match=r"other nodes \(node='any'\).*leave node out"):
        guerdon.Dispatcher([guerdon.reward(holds_a_lock, lane="thread", node="any")])
    one = guerdon.reward(functions.loop_extra.__wrapped__, name="one", loop="shared", node="any")
    two = guerdon.reward(functions.loop_extra.__wrapped__, name="two", loop="shared")
    with pytest.raises(RegistrationError, match="share the event loop 'shared'"):
        guerdon.Dispatcher([one, two])

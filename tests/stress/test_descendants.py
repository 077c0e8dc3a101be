"""Descendants: processes that functions start and leave behind."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from guerdon import Dispatcher, Status, reward
from tests.stress import starts_a_daemon
from tests.stress.harness import Scene, expect, gone, wait_for


@pytest.mark.fault(
    "a function forks children and grandchildren, and hangs",
    sees="`timeout`; all of them are killed with their worker",
)
def test_grandchildren_go_with_a_hung_worker(tmp_path: Path) -> None:
    with Scene(tmp_path, timeout=6.0) as scene:  # they are all there by then
        expect(scene.commit("fork_grandchildren:hang"), Status.TIMEOUT, "of 6 s")
        pids = scene.pids()
        assert len(pids) == 6
        wait_for(lambda: gone(pids), "the grandchildren end")


@pytest.mark.parametrize(
    ("deed", "count"),
    [
        pytest.param(
            "fork_grandchildren",
            6,
            marks=pytest.mark.fault(
                "a function forks children and grandchildren that sleep on, and returns",
                sees="its value; they are killed when their worker ends",
            ),
        ),
        pytest.param(
            "daemonise",
            1,
            marks=pytest.mark.fault(
                "a function starts a daemon: its own session, no descriptors, SIGTERM and SIGHUP ignored",
                sees="its value; the daemon is killed when its worker ends",
            ),
        ),
        pytest.param(
            "daemonise_by_exec",
            1,
            marks=pytest.mark.fault(
                "a function starts another program as a daemon",
                sees="its value; the daemon is killed when its worker ends",
            ),
        ),
        pytest.param(
            "start_a_pool",
            2,
            marks=pytest.mark.fault(
                "a function starts a `multiprocessing` pool and neither closes nor joins it",
                sees="its value; the pool is killed with its worker",
            ),
        ),
    ],
)
def test_leftovers_of_a_function_are_gone_after_close(deed: str, count: int, tmp_path: Path) -> None:
    with Scene(tmp_path) as scene:
        assert scene.commit(deed) is None
        pids = scene.pids()
        assert len(pids) == count
    wait_for(lambda: gone(pids), "what was left behind ends")


@pytest.mark.parametrize(
    ("deed", "status", "reason"),
    [
        pytest.param(
            "daemonise:hang",
            Status.TIMEOUT,
            "of 6 s",
            marks=pytest.mark.fault(
                "a function starts a daemon and hangs", sees="`timeout`; the daemon is killed with its worker"
            ),
        ),
        pytest.param(
            "daemonise:die",
            Status.CRASHED,
            "SIGKILL",
            marks=pytest.mark.fault(
                "a function starts a daemon and dies", sees="`crashed`; the daemon is killed at once"
            ),
        ),
        pytest.param(
            "daemonise_by_exec:hang",
            Status.TIMEOUT,
            "of 6 s",
            marks=pytest.mark.fault(
                "a function starts another program in a session of its own and hangs",
                sees="`timeout`; the program is killed with its worker",
            ),
        ),
        pytest.param(
            "leave_a_tree:hang",
            Status.TIMEOUT,
            "of 6 s",
            marks=pytest.mark.fault(
                "a function starts daemons that start daemons, and hangs",
                sees="`timeout`; all of them are killed with its worker",
            ),
        ),
        pytest.param(
            "start_a_pool:hang",
            Status.TIMEOUT,
            "of 6 s",
            marks=pytest.mark.fault(
                "a function hangs in a `multiprocessing` pool of its own", sees="`timeout`; the pool is killed with it"
            ),
        ),
    ],
)
def test_row_32_what_a_failed_call_left_behind_is_gone_with_its_worker(
    deed: str, status: Status, reason: str, tmp_path: Path
) -> None:
    with Scene(tmp_path, timeout=6.0) as scene:  # what it leaves behind is there by then
        expect(scene.commit(deed), status, reason)
        pids = scene.pids()
        assert pids
        wait_for(lambda: gone(pids), "what was left behind ends")


@pytest.mark.fault(
    "importing a function's module starts a daemon, and a call hangs",
    sees="`timeout`; the daemon serves the next calls and is killed when the dispatcher is closed",
)
def test_a_daemon_of_a_module_outlives_workers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NOTES", str(tmp_path))
    functions = [reward(starts_a_daemon.act, timeout=3.0, grace=0.1, max_failure_rate=1)]
    with Dispatcher(functions, workers=1) as dispatcher:
        result = dispatcher.score(completions=["hang", "daemon"])
        assert [failure.status for failure in result.failures()] == [Status.TIMEOUT]
        assert result.rewards[1, 0, 0] == 1  # after the worker was replaced
        pids = [int(line) for line in (tmp_path / "pids").read_text().split()]
        assert pids
        assert not gone(pids)
    wait_for(lambda: gone(pids), "the daemon ends")


@pytest.mark.fault(
    "a function forks and both processes return from it",
    sees="one value: the child can't answer, and ends",
)
def test_a_fork_that_returns_twice_answers_once(tmp_path: Path) -> None:
    with Scene(tmp_path) as scene:
        assert scene.commit("fork_and_return_twice") is None
        wait_for(lambda: gone(scene.pids()), "the child that returned ends")


@pytest.mark.parametrize(
    "deed",
    [
        pytest.param(
            "daemonise",
            marks=pytest.mark.fault(
                "the zygote is killed while a daemon of a function runs, which then has no ancestor of ours",
                sees="nothing: the daemon is found by the orphan marker in its environment, and killed",
            ),
        ),
        pytest.param(
            "daemonise_by_exec",
            marks=pytest.mark.fault(
                "the same with a daemon that is another program", sees="nothing: it is found by the orphan marker too"
            ),
        ),
    ],
)
@pytest.mark.parametrize("then", ["score", "close"])
def test_a_daemon_does_not_outlive_a_killed_zygote(deed: str, then: str, tmp_path: Path) -> None:
    with Scene(tmp_path) as scene:
        assert scene.commit(deed) is None
        pids = scene.pids()
        assert pids
        stem = scene.zygotes()[0]
        stem.kill()
        if then == "score":
            scene.expect_whole()
            wait_for(lambda: gone(pids), "the daemon ends")
    wait_for(lambda: gone(pids), "the daemon ends")


@pytest.mark.fault(
    "the trainer forks while a batch is in flight, and the child waits for it",
    sees="RuntimeError in the child: the batch ends only in the process that submitted it; the trainer gets its result",
)
def test_a_forked_child_does_not_wait_for_its_parents_batch(tmp_path: Path) -> None:
    script = """
import os
from guerdon import Dispatcher, reward
from tests.stress import faulty_functions
dispatcher = Dispatcher([reward(faulty_functions.act, timeout=20)], workers=1)
pending = dispatcher.submit(completions=["doze:1"] * 50, notes=[os.environ["NOTES"]] * 50, num_generations=1)
refused = []
if (child := os.fork()) == 0:
    for deed in (pending.result, pending.cancel, lambda: next(iter(pending.groups()))):
        try:
            deed()
        except RuntimeError as error:
            refused.append("another process" in str(error))
    os._exit(0 if refused == [True] * 3 else 1)
_, status = os.waitpid(child, 0)
assert status == 0, status
assert pending.result().rewards.sum() == 50
dispatcher.close()
"""
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", script],
        env={**os.environ, "NOTES": str(tmp_path)},
        capture_output=True,
        text=True,
        timeout=250,
        check=False,
    )
    assert done.returncode == 0, done.stderr

"""Descendants: processes that functions start and leave behind."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from guerdon import Dispatcher, Status, reward
from tests.faults import fault
from tests.stress import starts_a_daemon
from tests.stress.harness import Scene, expect, gone, wait_for

# The number of processes that each leaves behind.
HANG: list[Any] = [
    fault(
        "a function forks children and grandchildren, and hangs",
        sees="`timeout`; all of them are killed with their worker",
        of=("fork_grandchildren:hang", 6),
    ),
    fault(
        "a function starts a daemon and hangs",
        sees="`timeout`; the daemon is killed with its worker",
        of=("daemonise:hang", 1),
    ),
    fault(
        "a function starts another program in a session of its own and hangs",
        sees="`timeout`; the program is killed with its worker",
        of=("daemonise_by_exec:hang", 1),
    ),
    fault(
        "a function starts daemons that start daemons, and hangs",
        sees="`timeout`; all of them are killed with its worker",
        of=("leave_a_tree:hang", 3),
    ),
    fault(
        "a function hangs in a `multiprocessing` pool of its own",
        sees="`timeout`; the pool is killed with it",
        of=("start_a_pool:hang", 2),
    ),
]


def test_row_32_leftovers_of_calls_that_hang_are_gone_with_their_workers(tmp_path: Path) -> None:
    counts = {str(deed): count for deed, count in (row.values for row in HANG)}
    deeds = {deed: tmp_path / str(place) for place, deed in enumerate(counts)}
    for folder in deeds.values():
        folder.mkdir()
    with Scene(tmp_path, timeout=6.0, workers=len(deeds) + 1) as scene:
        for deed, failure in scene.commit_all(deeds).items():
            expect(failure, Status.TIMEOUT, "of 6 s")
            pids = scene.pids(deeds[deed])  # what it leaves behind is there by then
            assert len(pids) == counts[deed], deed
            wait_for(lambda pids=pids: gone(pids), f"what {deed} left behind ends")  # type: ignore[misc]


@pytest.mark.parametrize(
    ("deed", "count", "status", "reason"),
    [
        fault(
            "a function forks children and grandchildren that sleep on, and returns",
            sees="its value; they are killed when their worker ends",
            of=("fork_grandchildren", 6, Status.OK, ""),
        ),
        fault(
            "a function starts a daemon: its own session, no descriptors, SIGTERM and SIGHUP ignored",
            sees="its value; the daemon is killed when its worker ends",
            of=("daemonise", 1, Status.OK, ""),
        ),
        fault(
            "a function starts another program as a daemon",
            sees="its value; the daemon is killed when its worker ends",
            of=("daemonise_by_exec", 1, Status.OK, ""),
        ),
        fault(
            "a function starts a `multiprocessing` pool and neither closes nor joins it",
            sees="its value; the pool is killed with its worker",
            of=("start_a_pool", 2, Status.OK, ""),
        ),
        fault(
            "a function starts a daemon and dies",
            sees="`crashed`; the daemon is killed at once",
            of=("daemonise:die", 1, Status.CRASHED, "SIGKILL"),
        ),
    ],
)
def test_row_32_leftovers_of_a_call_are_gone_with_its_worker(
    deed: str, count: int, status: Status, reason: str, tmp_path: Path
) -> None:
    with Scene(tmp_path) as scene:
        failure = scene.commit(deed)
        pids = scene.pids()
        if failure is None:
            assert (status, len(pids)) == (Status.OK, count)
        else:
            expect(failure, status, reason)
            assert len(pids) in (count, count * failure.attempts)
            wait_for(lambda: gone(pids), "what was left behind ends")
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


@pytest.mark.parametrize(
    "deed",
    [
        fault(
            "the zygote is killed while a daemon of a function runs, which then has no ancestor of ours",
            sees="nothing: the daemon is found by the orphan marker in its environment, and killed",
            of=("daemonise",),
        ),
        fault(
            "the same with a daemon that is another program",
            sees="nothing: it is found by the orphan marker too",
            of=("daemonise_by_exec",),
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

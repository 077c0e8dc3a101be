"""The zygote and idle workers: killed and stopped from outside."""

from __future__ import annotations

import ctypes
import os
import signal
import time
from pathlib import Path

import pytest

from guerdon import Status
from tests.stress.harness import WORKERS, Scene, expect, gone, wait_for

PTRACE_ATTACH = 16


@pytest.mark.fault(
    "the zygote is killed between two batches",
    sees="nothing: another is started, and workers with it",
)
@pytest.mark.parametrize("which", ["stem", "loader"])
def test_a_killed_zygote_is_replaced(which: str, tmp_path: Path) -> None:
    with Scene(tmp_path) as scene:
        before = scene.dispatcher.worker_pids()
        scene.zygotes()[which == "loader"].kill()
        wait_for(lambda: gone(before), "its workers end with it")
        wait_for(lambda: not set(scene.dispatcher.worker_pids()) & set(before), "the pool knows that they ended")
        scene.expect_whole()
        assert not set(scene.dispatcher.worker_pids()) & set(before)


@pytest.mark.fault(
    "the zygote is killed amid a batch",
    sees="nothing: calls in hand are tried once more, everything else runs once",
)
@pytest.mark.parametrize("which", ["stem", "loader"])
def test_a_zygote_killed_amid_a_batch_costs_the_calls_in_hand(which: str, tmp_path: Path) -> None:
    with Scene(tmp_path) as scene:
        pending = scene.submit([f"doze:{index}" for index in range(40)])
        time.sleep(0.1)
        scene.zygotes()[which == "loader"].kill()
        result = pending.result(timeout=60)
        assert not result.failures()
        assert result.rewards[:, 0, 0].tolist() == [float(index) for index in range(40)]
        assert (result.attempts == 2).sum() <= WORKERS
        runs = (tmp_path / "runs").read_text().splitlines()
        assert sum(line.startswith("doze") for line in runs) <= 40 + WORKERS
        scene.expect_whole()


@pytest.mark.fault(
    "a function kills the process that forked its worker",
    sees="`crashed`: it takes its own worker with it each time; the others' calls are tried once more, and a call that it takes along both times fails with it",
)
def test_a_function_that_kills_its_parent(tmp_path: Path) -> None:
    with Scene(tmp_path) as scene:
        result = scene.score(["kill_its_parent"])
        expect(result.failures()[0], Status.CRASHED, "the worker process")
        scene.expect_whole()


@pytest.mark.fault(
    "the zygote is stopped (SIGSTOP) when a new worker is needed",
    sees="nothing but a delay under a second: it is continued",
)
@pytest.mark.parametrize("which", ["stem", "loader"])
def test_a_stopped_zygote_is_continued(which: str, tmp_path: Path) -> None:
    with Scene(tmp_path, timeout=3.0) as scene:
        scene.zygotes()[which == "loader"].suspend()
        expect(scene.commit("swallow_everything"), Status.TIMEOUT, "of 3 s")
        expect(scene.commit("signal_itself:9"), Status.CRASHED, "SIGKILL")


@pytest.mark.fault(
    "the zygote is stopped and can't go on, as under a debugger",
    sees="nothing but a delay of a second: another is started",
)
def test_a_zygote_that_stays_stopped_is_replaced(tmp_path: Path) -> None:
    with Scene(tmp_path) as scene:
        loader = scene.zygotes()[1].pid
        attached = ctypes.CDLL(None).ptrace(PTRACE_ATTACH, loader, None, None)
        if attached != 0:
            pytest.skip("no process may be traced here")
        os.waitpid(loader, 0)  # stopped, and deaf to SIGCONT
        os.kill(scene.dispatcher.worker_pids()[0], signal.SIGKILL)
        _, status = os.waitpid(loader, 0)
        assert os.waitstatus_to_exitcode(status) == -signal.SIGKILL
        scene.expect_whole()


@pytest.mark.fault("the zygote is stopped when the dispatcher is closed", sees="close returns in time all the same")
@pytest.mark.parametrize("which", ["stem", "loader"])
def test_close_does_not_wait_for_a_stopped_zygote(which: str, tmp_path: Path) -> None:
    with Scene(tmp_path) as scene:
        assert scene.commit("daemonise") is None
        scene.zygotes()[which == "loader"].suspend()
        start = time.monotonic()
    assert time.monotonic() - start < 40
    wait_for(lambda: gone(scene.pids()), "the daemon ends")


@pytest.mark.fault(
    "an idle worker is stopped (SIGSTOP) and then gets calls",
    sees="nothing but a delay of a second: it is killed and its calls go to others",
)
def test_an_idle_worker_that_is_stopped_is_replaced(tmp_path: Path) -> None:
    with Scene(tmp_path) as scene:
        for pid in scene.dispatcher.worker_pids():
            os.kill(pid, signal.SIGSTOP)
        texts = [f"give:{index}" for index in range(200)]
        start = time.monotonic()
        result = scene.score(texts)
        assert time.monotonic() - start < 40
        assert not result.failures()
        assert result.attempts.max() == 1
        scene.expect_whole()

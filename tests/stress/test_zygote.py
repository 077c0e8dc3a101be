"""The zygote and idle workers: killed and stopped from outside, or lost as they start."""

from __future__ import annotations

import ctypes
import os
import signal
import time
from pathlib import Path
from typing import Any

import pytest

from guerdon import Dispatcher, StatefulReward, Status, reward
from tests.stress import faulty_functions
from tests.stress.harness import Scene, descendants, expect, gone, runs, wait_for

PTRACE_ATTACH = 16


@pytest.mark.fault(
    "the zygote is killed between two batches",
    sees="nothing: another is started, and workers with it; no zombie is left",
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
        wait_for(lambda: all(runs(one.pid) for one in descendants()), "no zombie is left")


@pytest.mark.fault(
    "a function kills the process that forked its worker, or the one above that, for several samples at once",
    sees="`crashed`, once it has done so where no other worker was lost with it, after two or three runs; every other call keeps its value",
)
@pytest.mark.parametrize("levels", [1, 2])
@pytest.mark.parametrize("isolation", ["worker", "call"])
def test_a_function_that_kills_its_parent(isolation: str, levels: int, tmp_path: Path) -> None:
    deed = f"kill_its_parent:{levels}"
    guilty = [0, 7, 8, 31]
    with Scene(tmp_path, isolation=isolation) as scene:
        texts = [deed if index in guilty else f"doze:{index}" for index in range(40)]
        result = scene.score(texts)
        assert [failure.sample for failure in result.failures()] == guilty
        for failure in result.failures():
            expect(failure, Status.CRASHED, "was killed with its zygote, which had no other worker")
        kept = [index for index in range(40) if index not in guilty]
        assert result.rewards[kept, 0, 0].tolist() == [float(index) for index in kept]
        assert (tmp_path / "runs").read_text().splitlines().count(deed) <= 3 * len(guilty)
        scene.expect_whole()


@pytest.mark.fault(
    "the same where the pool has one worker, and where the user asks for retries",
    sees="the same: what ended a zygote is not tried again",
)
def test_a_function_that_kills_its_parent_in_a_narrow_pool(tmp_path: Path) -> None:
    function = reward(faulty_functions.act, timeout=10, max_failure_rate=1.0, retries=3)
    with Dispatcher([function], workers=1) as dispatcher:
        texts = ["kill_its_parent:2", "give:1", "kill_its_parent:1", "give:3"]
        result = dispatcher.score(completions=texts, notes=[str(tmp_path)] * 4, num_generations=1)
    assert [failure.sample for failure in result.failures()] == [0, 2]
    assert {failure.status for failure in result.failures()} == {Status.CRASHED}
    assert result.rewards[[1, 3], 0, 0].tolist() == [1.0, 3.0]
    assert len((tmp_path / "runs").read_text().splitlines()) <= 3 + 2 + 2 * 3


@pytest.mark.fault(
    "a call hangs in the zygote that it has to itself, as two were lost under it",
    sees="`timeout`, as anywhere; others go on meanwhile",
)
def test_a_call_with_a_zygote_to_itself_keeps_its_timeout(tmp_path: Path) -> None:
    with Scene(tmp_path, timeout=3.0) as scene:
        result = scene.score(["kill_zygotes_and_hang:2", *(f"doze:{index}" for index in range(20))])
        assert [failure.sample for failure in result.failures()] == [0]
        expect(result.failures()[0], Status.TIMEOUT, "of 3 s")
        scene.expect_whole()


@pytest.mark.fault(
    "the dispatcher is closed, or the batch cancelled, while a call has a zygote to itself",
    sees="close returns in time, the call is `cancelled`, no process is left",
)
@pytest.mark.parametrize("how", ["close", "cancel"])
def test_an_end_amid_a_call_with_a_zygote_to_itself(how: str, tmp_path: Path) -> None:
    with Scene(tmp_path, timeout=60.0) as scene:
        pending = scene.submit(["kill_zygotes_and_hang:2", "give:1"])
        wait_for(lambda: (tmp_path / "runs").read_text().count("kill_zygotes_and_hang") == 3, "it runs a third time")
        start = time.monotonic()
        if how == "cancel":
            pending.cancel()
            scene.expect_whole()
        scene.dispatcher.close()
        assert time.monotonic() - start < 40
        result = pending.result()
        expect(result.failures()[0], Status.CANCELLED, "")
        assert result.rewards[1, 0, 0] == 1.0
    wait_for(lambda: not descendants(), "no process is left")


@pytest.mark.fault(
    "the zygote is stopped (SIGSTOP) when a new worker is needed",
    sees="nothing but a delay under a second: it is continued",
)
@pytest.mark.fault("the zygote is stopped when the dispatcher is closed", sees="close returns in time all the same")
@pytest.mark.parametrize("which", ["stem", "loader"])
def test_a_stopped_zygote_is_continued_and_not_waited_for_at_the_end(which: str, tmp_path: Path) -> None:
    with Scene(tmp_path, timeout=3.0) as scene:
        scene.zygotes()[which == "loader"].suspend()
        expect(scene.commit("swallow_everything"), Status.TIMEOUT, "of 3 s")
        expect(scene.commit("signal_itself:9"), Status.CRASHED, "SIGKILL")
        assert scene.commit("daemonise") is None
        scene.zygotes()[which == "loader"].suspend()
        start = time.monotonic()
    assert time.monotonic() - start < 40
    wait_for(lambda: gone(scene.pids()), "the daemon ends")


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
        # Each: one that was not ready yet is not replaced at once.
        for pid in scene.dispatcher.worker_pids():
            os.kill(pid, signal.SIGKILL)
        _, status = os.waitpid(loader, 0)
        assert os.waitstatus_to_exitcode(status) == -signal.SIGKILL
        scene.expect_whole()


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


TEXTS = [str(index) for index in range(64)]


class DiesOnce(StatefulReward):
    """Its first `setup()` ends its process."""

    def __init__(self, note: Path) -> None:
        self.note = note

    def setup(self) -> None:
        _die_once(self.note)

    def score(self, completion: str) -> float:
        return float(completion)


class DiesOnceLoading:
    """Ends the first process that unpickles it."""

    def __init__(self, note: Path) -> None:
        self.note = note

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        _die_once(self.note)

    def __call__(self, completion: str) -> float:
        return float(completion)


def _die_once(note: Path) -> None:
    try:
        note.touch(exist_ok=False)
    except FileExistsError:
        return
    os._exit(9)


@pytest.mark.fault(
    "the worker is killed in `setup()`, once",
    sees="nothing but a second attempt on one sample: the setup is tried once more on a fresh worker, like a call whose worker died",
)
def test_a_worker_lost_in_setup_costs_one_more_attempt(tmp_path: Path) -> None:
    with Dispatcher([reward(DiesOnce(tmp_path / "note"))], workers=1) as dispatcher:
        result = dispatcher.score(completions=TEXTS)
    assert result.rewards.ravel().tolist() == [float(text) for text in TEXTS]
    assert sorted(result.attempts.ravel().tolist()) == [1] * 63 + [2]


@pytest.mark.fault("the zygote is killed while it loads the functions, once", sees="nothing: another one loads them")
def test_a_loader_lost_while_loading_is_replaced(tmp_path: Path) -> None:
    dies_once = reward(DiesOnceLoading(tmp_path / "note"), name="dies_once")
    with Dispatcher([dies_once], workers=2) as dispatcher:
        result = dispatcher.score(completions=TEXTS)
        assert dispatcher.stats()["worker_loads"] == 0
    assert result.rewards.ravel().tolist() == [float(text) for text in TEXTS]
    assert result.attempts.max() == 1

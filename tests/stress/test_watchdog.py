"""The watchdog: what hangs is reported by itself, what is merely slow, idle or stopped is not."""

from __future__ import annotations

import contextlib
import os
import re
import signal
import socket
import subprocess
import time
import warnings
from itertools import pairwise
from pathlib import Path

import pytest

from guerdon import Dispatcher, Limit, judge, reward
from guerdon.errors import GuerdonWarning, RegistrationError
from tests.processes import run_python, started_python
from tests.stress.harness import wait_for

AFTER = 0.6


def hang(completion: str) -> float:
    """Until something is written to the pipe that the text names, if it names one."""
    if completion:
        Path(completion).read_text()
    return 1.0


def reports(caught: list[warnings.WarningMessage]) -> list[str]:
    return [str(one.message) for one in caught if str(one.message).startswith("watchdog: ")]


@pytest.mark.parametrize("value", [0, -1, float("inf"), float("nan"), "soon", 1e12])
def test_a_time_that_is_none_is_refused(value: object) -> None:
    with pytest.raises(RegistrationError, match="watchdog"):
        Dispatcher([reward(hang)], watchdog=value)  # type: ignore[arg-type]


@pytest.mark.fault(
    "a call hangs, far from its own timeout, with a watchdog set",
    sees="a warning with its stack, again when the stall has doubled; beside a journal a file with the same",
)
@pytest.mark.parametrize("lane", ["process", "thread"])
def test_a_call_that_hangs_is_reported_with_its_stack(lane: str, tmp_path: Path) -> None:
    pipe, folder = tmp_path / "pipe", tmp_path / "journal"
    os.mkfifo(pipe)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        stuck = reward(hang, lane=lane, timeout=600)  # type: ignore[call-overload]
        with Dispatcher([stuck], watchdog=AFTER, workers=1, journal=str(folder)) as dispatcher:
            dispatcher.score(completions=[""])  # the worker starts
            early = len(caught)
            pending = dispatcher.submit(completions=[str(pipe), ""])
            wait_for(lambda: len(reports(caught[early:])) >= 3, "three reports")
            pipe.write_text("1")
            assert pending.result().rewards.ravel().tolist() == [1.0, 1.0]
        found = reports(caught[early:])
        stalls = [float(re.findall(r"no call had ended for ([\d.]+) s", text)[0]) for text in found]
        assert stalls[0] >= AFTER
        assert all(later >= 1.99 * earlier for earlier, later in pairwise(stalls)), stalls
        assert "(watchdog=0.6)" in found[0]
        assert "'hang' 600 s" in found[0]
        assert any("Path(completion).read_text()" in text for text in found), found
        assert all(issubclass(one.category, GuerdonWarning) for one in caught[early:])
    written = (folder / f"watchdog-r0-{os.getpid()}.txt").read_text()
    assert "Path(completion).read_text()" in written
    assert written.count("watchdog: no call had ended for") == len(reports(caught))


@pytest.mark.fault(
    "a judge's server accepts and never answers, with a watchdog set", sees="a warning that names the server"
)
def test_a_dead_judge_server_is_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.socket() as silent, warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        silent.bind(("127.0.0.1", 0))
        silent.listen(8)
        address = f"http://127.0.0.1:{silent.getsockname()[1]}/v1"
        helpful = judge(base_url=address, model="m", prompt="{completion}", name="helpful", timeout=600, retries=0)
        with Dispatcher([helpful], watchdog=AFTER, max_failure_rate=1.0) as dispatcher:
            pending = dispatcher.submit(completions=["secret text"])
            wait_for(lambda: any("127.0.0.1" in text for text in reports(caught)), "a report with the server")
            pending.cancel()
    found = reports(caught)
    assert any("'helpful'" in text and "127.0.0.1" in text for text in found)
    assert not any("secret text" in text for text in found)


def test_slow_calls_idle_times_and_limits_are_no_stall() -> None:
    def brief(completion: str) -> float:
        return 1.0

    after = 1.5
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        slow = reward(brief, lane="thread", name="slow", limit=Limit(rpm=30))
        with Dispatcher([slow], watchdog=after) as dispatcher:
            time.sleep(1.3 * after)
            # Two a burst at most, then one each 2 s: far apart, but nothing runs meanwhile.
            dispatcher.score(completions=["a"] * 3)
            time.sleep(1.3 * after)
    assert reports(caught) == []


@pytest.mark.fault(
    "C code keeps the interpreter's lock for longer than the watchdog waits",
    sees="a report of the engine on stderr, without Python",
)
def test_a_held_interpreter_lock_is_reported_without_python() -> None:
    trainer = run_python(
        """
        import ctypes, time
        import guerdon

        @guerdon.reward(lane="thread", timeout=600)
        def stuck(completion: str) -> float:
            ctypes.PyDLL(None).usleep(4_000_000)  # PyDLL: the lock is kept
            return 1.0

        with guerdon.Dispatcher([stuck], watchdog=0.5) as dispatcher:
            print(dispatcher.score(completions=["very " + "secret"]).rewards.tolist())
        """,
        flags=["-W", "always"],
    )
    assert "[[[1.0]]]" in trainer.stdout
    assert "did not answer for 0.5 s" in trainer.stderr
    assert '"stuck" on sample 0 of batch 1' in trainer.stderr
    assert "Threads of this process" in trainer.stderr
    assert "very secret" not in trainer.stderr


@pytest.mark.fault("a trainer is stopped and goes on (SIGSTOP, SIGCONT), with a watchdog set", sees="no false alarm")
def test_a_stopped_process_does_not_cry() -> None:
    program = """
        import time, warnings
        import guerdon

        warnings.simplefilter("always")

        @guerdon.reward(lane="thread", timeout=600)
        def brief(completion: str) -> float:
            time.sleep(1.0)
            return 1.0

        with guerdon.Dispatcher([brief], watchdog=2.0) as dispatcher:
            pending = dispatcher.submit(completions=["a"])
            print("ready", flush=True)
            print(pending.result().rewards.tolist())
        """
    with started_python(program, says="ready", stderr=subprocess.PIPE) as trainer:
        for _ in range(3):
            trainer.send_signal(signal.SIGSTOP)
            time.sleep(1.5)
            trainer.send_signal(signal.SIGCONT)
            time.sleep(0.05)
        out, err = trainer.communicate(timeout=250)
    assert "[[[1.0]]]" in out
    assert "watchdog" not in err


@pytest.mark.fault(
    "a process with a watchdog is forked",
    sees="no report from the child; that of the parent as ever",
)
def test_a_forked_child_neither_reports_nor_disturbs() -> None:
    run_python(
        """
        import os, sys, threading, time, warnings
        import guerdon

        warnings.filterwarnings("ignore", category=DeprecationWarning)
        released, seen = threading.Event(), []

        @guerdon.reward(lane="thread", timeout=600)
        def brief(completion: str) -> float:
            assert released.wait(100)
            return 1.0

        # Lets the call go on once it was reported twice.
        def showwarning(message, *_):
            if "no call had ended" in str(message):
                seen.append(os.getpid())
                if len(seen) == 2:
                    released.set()

        warnings.showwarning = showwarning
        with guerdon.Dispatcher([brief], watchdog=0.4) as dispatcher:
            pending = dispatcher.submit(completions=["a"])
            child = os.fork()
            if child == 0:
                code = 1
                try:
                    seen.clear()
                    released.clear()
                    time.sleep(1.5)  # the call is in flight in the parent alone
                    assert seen == [], seen
                    with guerdon.Dispatcher([brief], watchdog=0.4) as own:
                        own.score(completions=["b"])
                    assert len(seen) >= 2 and set(seen) == {os.getpid()}, seen
                    code = 0
                finally:
                    sys.excepthook(*sys.exc_info()) if code else None
                    os._exit(code)
            pending.result()
            assert len(seen) >= 2, seen
            assert os.waitpid(child, 0)[1] == 0
        """,
        flags=["-W", "always"],
    )


def test_a_dispatcher_that_is_gone_ends_its_watchdog() -> None:
    def ours() -> set[str]:
        found = set()
        for task in Path("/proc/self/task").iterdir():
            with contextlib.suppress(OSError):  # it ends as we look
                if "guerdon" in (task / "comm").read_text():
                    found.add(task.name)
        return found

    before = ours()  # of other tests' dispatchers
    for _ in range(5):
        with Dispatcher([reward(hang, lane="thread")], watchdog=60) as dispatcher:
            dispatcher.score(completions=[""])
    wait_for(lambda: len(ours() - before) <= 4, "its threads end")

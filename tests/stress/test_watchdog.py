"""The watchdog: what hangs is reported by itself, what is merely slow, idle or stopped is not."""

from __future__ import annotations

import contextlib
import os
import re
import signal
import socket
import subprocess
import sys
import textwrap
import time
import warnings
from pathlib import Path

import pytest

from guerdon import Dispatcher, Limit, judge, reward
from guerdon.errors import GuerdonWarning, RegistrationError

AFTER = 0.6


def hang(completion: str) -> float:
    time.sleep(float(completion))
    return 1.0


def run_script(tmp_path: Path, body: str, **options: object) -> subprocess.Popen[str]:
    """Starts a trainer of its own."""
    script = tmp_path / "trainer.py"
    script.write_text(textwrap.dedent(body))
    return subprocess.Popen(
        [sys.executable, "-W", "always", str(script)], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )


def reports(caught: list[warnings.WarningMessage]) -> list[str]:
    return [str(one.message) for one in caught if str(one.message).startswith("watchdog: ")]


@pytest.mark.parametrize("value", [0, -1, float("inf"), float("nan"), "soon", 1e12])
def test_a_time_that_is_none_is_refused(value: object) -> None:
    with pytest.raises(RegistrationError, match="watchdog"):
        Dispatcher([reward(hang)], watchdog=value)  # type: ignore[arg-type]


def test_it_is_an_option_like_others() -> None:
    dispatcher = Dispatcher([reward(hang)], watchdog=120)
    assert dispatcher.options["watchdog"] == 120
    assert dispatcher.replace(workers=1).options["watchdog"] == 120
    assert Dispatcher([reward(hang)]).options["watchdog"] is None


@pytest.mark.fault(
    "a call hangs, far from its own timeout, with a watchdog set",
    sees="a warning with its stack, again when the stall has doubled",
)
@pytest.mark.parametrize("lane", ["process", "thread"])
def test_a_call_that_hangs_is_reported_with_its_stack(lane: str) -> None:
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        with Dispatcher([reward(hang, lane=lane, timeout=600)], watchdog=AFTER, workers=1) as dispatcher:  # type: ignore[call-overload]
            dispatcher.score(completions=["0"])  # the worker starts
            caught.clear()
            dispatcher.score(completions=["3", "0"])
        # The stall of three seconds is reported at 0.6, 1.2 and 2.4 s.
        found = reports(caught)
        assert 2 <= len(found) <= 3, found
        assert "no call had ended for" in found[0]
        assert "(watchdog=0.6)" in found[0]
        assert "'hang' 600 s" in found[0]
        assert "time.sleep(float(completion))" in found[0]
        assert all(issubclass(one.category, GuerdonWarning) for one in caught)


def test_beside_a_journal_there_is_a_file_too(tmp_path: Path) -> None:
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        stuck = reward(hang, lane="thread", timeout=600)
        with Dispatcher([stuck], watchdog=AFTER, journal=str(tmp_path)) as dispatcher:
            dispatcher.score(completions=["0.9"])
    assert len(reports(caught)) == 1
    (file,) = tmp_path.glob(f"watchdog-r0-{os.getpid()}.txt")
    assert "time.sleep(float(completion))" in file.read_text()


def test_an_async_call_that_hangs_is_reported() -> None:
    async def waits(completion: str) -> float:
        import asyncio

        await asyncio.sleep(float(completion))
        return 1.0

    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        with Dispatcher([reward(waits, timeout=600)], watchdog=AFTER) as dispatcher:
            dispatcher.score(completions=["1.1"])
    assert len(reports(caught)) == 1
    assert "await asyncio.sleep(float(completion))" in reports(caught)[0]


@pytest.mark.fault(
    "a judge's server accepts and never answers, with a watchdog set", sees="a warning that names the server"
)
def test_a_dead_judge_server_is_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.socket() as silent, warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        silent.bind(("127.0.0.1", 0))
        silent.listen(8)
        address = f"http://127.0.0.1:{silent.getsockname()[1]}/v1"
        helpful = judge(base_url=address, model="m", prompt="{completion}", name="helpful", timeout=1.5, retries=0)
        with Dispatcher([helpful], watchdog=AFTER, max_failure_rate=1.0) as dispatcher:
            dispatcher.score(completions=["secret text"])
    found = reports(caught)
    assert found
    assert "'helpful'" in found[0]
    assert "127.0.0.1" in found[0]
    assert "secret text" not in found[0]


def test_slow_calls_idle_times_and_limits_are_no_stall() -> None:
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        slow = reward(hang, lane="thread", name="slow", limit=Limit(rpm=40))
        with Dispatcher([slow], watchdog=AFTER) as dispatcher:
            time.sleep(2 * AFTER)
            # Two a burst at most, then one each 1.5 s: far apart, but nothing runs meanwhile.
            dispatcher.score(completions=["0.01"] * 3)
            time.sleep(2 * AFTER)
    assert reports(caught) == []


@pytest.mark.fault(
    "C code keeps the interpreter's lock for longer than the watchdog waits",
    sees="a report of the engine on stderr, without Python",
)
def test_a_held_interpreter_lock_is_reported_without_python(tmp_path: Path) -> None:
    trainer = run_script(
        tmp_path,
        """
        import ctypes, time
        import guerdon

        @guerdon.reward(lane="thread", timeout=600)
        def stuck(completion: str) -> float:
            ctypes.PyDLL(None).usleep(4_000_000)  # PyDLL: the lock is kept
            return 1.0

        with guerdon.Dispatcher([stuck], watchdog=0.5) as dispatcher:
            print(dispatcher.score(completions=["very secret"]).rewards.tolist())
        """,
    )
    out, err = trainer.communicate(timeout=120)
    assert trainer.returncode == 0, err
    assert "[[[1.0]]]" in out
    assert "did not answer for 0.5 s" in err
    assert '"stuck" on sample 0 of batch 1' in err
    assert "Threads of this process" in err
    assert "very secret" not in err


@pytest.mark.fault("a trainer is stopped and goes on (SIGSTOP, SIGCONT), with a watchdog set", sees="no false alarm")
def test_a_stopped_process_does_not_cry(tmp_path: Path) -> None:
    trainer = run_script(
        tmp_path,
        """
        import time
        import guerdon

        @guerdon.reward(lane="thread", timeout=600)
        def brief(completion: str) -> float:
            time.sleep(1.0)
            return 1.0

        with guerdon.Dispatcher([brief], watchdog=2.0) as dispatcher:
            pending = dispatcher.submit(completions=["a"])
            print("ready", flush=True)
            print(pending.result().rewards.tolist())
        """,
    )
    assert trainer.stdout is not None
    assert trainer.stdout.readline() == "ready\n"
    for _ in range(3):
        trainer.send_signal(signal.SIGSTOP)
        time.sleep(1.5)
        trainer.send_signal(signal.SIGCONT)
        time.sleep(0.05)
    out, err = trainer.communicate(timeout=120)
    assert "[[[1.0]]]" in out
    assert "watchdog" not in err


@pytest.mark.fault(
    "a process with a watchdog is forked",
    sees="no report from the child; that of the parent as ever",
)
def test_a_forked_child_neither_reports_nor_disturbs(tmp_path: Path) -> None:
    trainer = run_script(
        tmp_path,
        """
        import os, time, warnings
        import guerdon

        warnings.filterwarnings("ignore", category=DeprecationWarning)

        @guerdon.reward(lane="thread", timeout=600)
        def brief(completion: str) -> float:
            time.sleep(float(completion))
            return 1.0

        with guerdon.Dispatcher([brief], watchdog=0.4) as dispatcher:
            pending = dispatcher.submit(completions=["2.0"])
            time.sleep(0.2)
            child = os.fork()
            if child == 0:
                time.sleep(1.5)  # the call is in flight in the parent alone
                with guerdon.Dispatcher([brief], watchdog=0.4) as own:
                    own.score(completions=["0.7"])
                os._exit(0)
            pending.result()
            assert os.waitpid(child, 0)[1] == 0
        """,
    )
    _, err = trainer.communicate(timeout=120)
    assert trainer.returncode == 0, err
    parent = [float(found) for found in re.findall(r"no call had ended for ([\d.]+) s", err)]
    # At 0.4, 0.8 and 1.6 s in the parent; once in the child's own engine.
    assert 2 <= len(parent) <= 4, err


def test_a_dispatcher_that_is_gone_ends_its_watchdog() -> None:
    def count() -> int:
        found = 0
        for task in Path("/proc/self/task").iterdir():
            with contextlib.suppress(OSError):  # it ends as we look
                found += "guerdon" in (task / "comm").read_text()
        return found

    for _ in range(5):
        with Dispatcher([reward(hang, lane="thread")], watchdog=60) as dispatcher:
            dispatcher.score(completions=["0"])
    end = time.monotonic() + 20
    while count() > 4 and time.monotonic() < end:
        time.sleep(0.1)
    assert count() <= 4

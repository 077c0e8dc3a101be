"""The live state on a Unix socket: what it says, who gets it, and what is left of it."""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import stat
import subprocess
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from guerdon import Dispatcher, Limit, Status, reward
from guerdon._system import socket_folders
from tests.clock import eventually
from tests.monitor import reading
from tests.monitor.reading import scripted
from tests.processes import run_python, started_python


@reward
def sleeps(text: str) -> float:
    time.sleep(float(text))
    return 1.0


@pytest.fixture
def runtime(monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """The folder of sockets, in a runtime folder of its own; its path is short enough for them."""
    short = tempfile.mkdtemp(prefix="g", dir="/tmp")
    monkeypatch.setenv("XDG_RUNTIME_DIR", short)
    yield Path(short) / "guerdon"
    shutil.rmtree(short)


def test_counts_begin_with_the_first_look_and_calls_in_flight_have_stacks() -> None:
    with Dispatcher([scripted, sleeps], workers=1, metrics_port=None) as dispatcher:
        dispatcher.score(completions=["0"] * 4)
        first = reading.state(dispatcher)
        # nobody had asked before
        assert [one["counts"]["ok"] for one in first["functions"]] == [0, 0]
        assert first["counted_since"] <= first["now"]
        pending = dispatcher.submit(completions=["0", "30", "30"])
        deadline = time.monotonic() + 60
        while True:
            now = reading.state(dispatcher)
            if any(call["function"] == "sleeps" and call["sample"] == 1 and call["stack"] for call in now["in_flight"]):
                break
            assert time.monotonic() < deadline, now
            time.sleep(0.05)
        call = next(call for call in now["in_flight"] if call["function"] == "sleeps")
        assert "in sleeps" in call["stack"]
        assert call["lane"] == "process"
        assert call["seconds"] > 0
        worker = next(worker for worker in now["workers"] if worker["sample"] == 1)
        assert worker["function"] == "sleeps"
        assert worker["rss_bytes"] > 1 << 20
        assert worker["pid"] in dispatcher.worker_pids()
        names = {one["name"]: one for one in now["functions"]}
        assert names["scripted"]["lane"] == "thread"
        # the first one ends with its frame, or sooner
        assert names["sleeps"]["open_cells"] in (2, 3)
        assert now["stats"]["open_batches"] == 1
        assert (now["pid"], now["rank"]) == (os.getpid(), 0)
        assert not any(call["stack"] for call in reading.state(dispatcher, "?stacks=0")["in_flight"])
        pending.cancel()
        results = [pending.result(), dispatcher.score(completions=["0", "none"])]
        after = reading.state(dispatcher)["functions"]
    for place, function in enumerate(after):
        found = Counter(Status(status).label for result in results for status in result.status[..., place].ravel())
        assert {status: count for status, count in function["counts"].items() if count} == dict(found)


def test_percentiles_and_rates_are_near_what_happened() -> None:
    with Dispatcher([sleeps], workers=2) as dispatcher:
        dispatcher.score(completions=["0"])
        reading.state(dispatcher)
        result = dispatcher.score(completions=["0.02"] * 40)
        time.sleep(1.1)  # a rate is of whole seconds
        function = reading.state(dispatcher)["functions"][0]
    times = sorted(result.run_s.ravel().tolist())
    assert function["counts"]["ok"] == 40
    assert function["run_s"]["p50"] == pytest.approx(times[19], rel=0.15)
    assert function["run_s"]["p99"] == pytest.approx(times[39], rel=0.15)
    assert 0 < function["rate"] <= 4.0


def test_outcomes_count_before_their_group_is_complete() -> None:
    with Dispatcher([sleeps], workers=2) as dispatcher:
        dispatcher.score(completions=["0"])
        reading.state(dispatcher)
        pending = dispatcher.submit(completions=["0", "0", "0", "30"], num_generations=4)

        def ended() -> bool:
            (function,) = reading.state(dispatcher)["functions"]
            shown: tuple[int, int, bool] = function["counts"]["ok"], function["open_cells"], function["rate"] > 0
            return shown == (3, 1, True)

        eventually(ended)
        pending.cancel()
        result = pending.result()
        (function,) = reading.state(dispatcher)["functions"]
    assert (function["counts"]["ok"], function["counts"]["cancelled"], function["open_cells"]) == (3, 1, 0)
    assert np.count_nonzero(result.status == Status.OK) == 3


def test_stacks_of_threads_and_loops_are_read_of_the_calls_that_take_longest() -> None:
    begun, go = threading.Semaphore(0), threading.Event()

    @reward(lane="thread", name="waits", limit=Limit(concurrency=30))
    def waits(text: str) -> float:
        begun.release()
        go.wait(250)
        return 1.0

    async def deep() -> None:
        begun.release()
        await asyncio.sleep(250)

    @reward(name="awaits")
    async def awaits(text: str) -> float:
        await deep()
        return 1.0

    for function, calls in ((waits, 30), (awaits, 1)):
        with Dispatcher([function]) as dispatcher:
            pending = dispatcher.submit(completions=["a"] * calls)
            assert all(begun.acquire(timeout=60) for _ in range(calls))
            for _ in range(200):  # the machine may be too busy for a stack at the first look
                shown = reading.state(dispatcher)["in_flight"]
                without = {call["no_stack"] for call in shown if not call["stack"]}
                if not without:
                    break
                assert without == {"Python did not answer in time"}
                time.sleep(0.1)
            assert len(shown) == min(calls, 20)
            for call in shown:
                assert call["function"] == function.spec.name
                lines = call["stack"].splitlines()
                assert f'File "{__file__}"' in call["stack"]
                assert lines[0].endswith(f", in {call['function']}")
                assert function is waits or lines[1].endswith(", in deep")
            unasked = reading.state(dispatcher, "?stacks=0")
            assert unasked["calls_in_flight"] == calls
            assert {(call["stack"], call["no_stack"]) for call in unasked["in_flight"]} == {(None, "not asked for")}
            go.set()
            pending.cancel()


_STUCK = """
import ctypes, sys, guerdon
def stuck(text):
    if text == "warm up":
        return 1.0
    print("begun", flush=True)
    ctypes.PyDLL(None).sleep(250)  # keeps the interpreter's lock
    return 1.0
dispatcher = guerdon.Dispatcher([guerdon.reward(stuck, lane="thread")])
dispatcher.score(completions=["warm up"])
print(dispatcher.stats()["state_socket"], flush=True)
dispatcher.score(completions=["a"])
"""


@pytest.mark.fault(
    "C code keeps the interpreter's lock while somebody looks at the live state",
    sees="the calls without the stacks of this process's, within half a second",
)
def test_a_stuck_interpreter_has_no_stacks_but_calls() -> None:
    with started_python(_STUCK) as program:
        assert program.stdout is not None
        path = program.stdout.readline().strip()
        assert program.stdout.readline() == "begun\n"
        until, without = time.monotonic() + 60, 0
        while without < 3 and time.monotonic() < until:
            status, _, body = reading.get(reading.UnixConnection(path), "/state")
            assert status == 200
            (call,) = json.loads(body)["in_flight"]
            assert call["function"] == "stuck"
            if call["stack"] is not None:  # it is about to take the lock
                assert without == 0
                continue
            assert call["no_stack"] == "Python did not answer in time"
            without += 1
        assert without == 3


def test_the_folder_is_the_users_alone_and_the_socket_goes_with_the_dispatcher(
    runtime: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The metrics are there too, and it can be switched off."""
    with Dispatcher([scripted]) as dispatcher:
        dispatcher.score(completions=["a"])
        path = Path(dispatcher.stats()["state_socket"])
        assert path.parent == runtime
        assert path.name.startswith(f"{os.getpid()}-")
        assert stat.S_IMODE(runtime.stat().st_mode) == 0o700
        with Dispatcher([scripted]) as other:
            other.score(completions=["a"])
            assert other.stats()["state_socket"] != str(path)
            reading.state(other)
            other.score(completions=["a"])
            status, _, metrics = reading.get(reading.UnixConnection(other.stats()["state_socket"]), "/metrics")
        assert status == 200
        counted = reading.series(reading.families(metrics))
        assert reading.value(counted, "guerdon_calls_total", function="scripted", status="ok") == 1
    assert list(runtime.iterdir()) == []
    runtime.rmdir()
    monkeypatch.setenv("GUERDON_TOP", "0")
    with Dispatcher([scripted]) as dispatcher:
        dispatcher.score(completions=["a"])
        assert dispatcher.stats()["state_socket"] == "none: switched off by GUERDON_TOP=0"
    assert not runtime.exists()


@pytest.mark.fault(
    "a trainer was killed and left its socket",
    sees="the next process that looks removes it",
)
def test_sockets_of_dead_processes_are_removed(runtime: Path) -> None:
    with started_python(_TRAINER, says="", stdin=subprocess.PIPE):
        (left,) = runtime.iterdir()
        with Dispatcher([scripted]) as dispatcher:
            dispatcher.score(completions=["a"])
            assert left.exists()  # its process lives
    assert left.exists()
    with Dispatcher([scripted]) as dispatcher:
        dispatcher.score(completions=["a"])
        assert not left.exists()


_TRAINER = """
import guerdon

dispatcher = guerdon.Dispatcher([guerdon.reward(lambda text: 1.0, name="one", lane="thread")])
dispatcher.score(completions=["a"])
print(flush=True)
input()
"""


@pytest.mark.parametrize("kind", ["file", "others may enter", "link"])
@pytest.mark.fault(
    "the folder for sockets is a file, a link, or open to others",
    sees="another folder, or none: `stats()` says why; scores as ever",
)
def test_a_folder_that_will_not_do_is_passed_over(runtime: Path, monkeypatch: pytest.MonkeyPatch, kind: str) -> None:
    if kind == "file":
        runtime.write_text("")
    elif kind == "link":
        elsewhere = runtime.parent / "elsewhere"
        elsewhere.mkdir(mode=0o700)
        runtime.symlink_to(elsewhere)
    else:
        runtime.mkdir()
        runtime.chmod(0o755)
    own = runtime.parent / "own"
    monkeypatch.setattr(socket_folders, "folders", lambda environ: [runtime, own])
    with Dispatcher([scripted]) as dispatcher:
        assert dispatcher.score(completions=["abc"]).rewards.item() == 3.0
        assert Path(dispatcher.stats()["state_socket"]).parent == own
    monkeypatch.setattr(socket_folders, "folders", lambda environ: [runtime])
    with Dispatcher([scripted]) as dispatcher:
        assert dispatcher.score(completions=["abc"]).rewards.item() == 3.0
        assert dispatcher.stats()["state_socket"].startswith("none: ")


@pytest.mark.fault(
    "the path of the user's runtime folder is too long for a socket",
    sees="no socket: `stats()` says why; scores as ever",
)
def test_a_path_too_long_is_no_socket(runtime: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    long = runtime.parent / ("a" * 100)
    monkeypatch.setattr(socket_folders, "folders", lambda environ: [long])
    with Dispatcher([scripted]) as dispatcher:
        dispatcher.score(completions=["a"])
        assert "too long" in dispatcher.stats()["state_socket"]


@pytest.mark.fault(
    "another user connects to the socket of the live state",
    sees="no answer",
)
def test_another_user_is_turned_away(runtime: Path) -> None:
    if os.geteuid() != 0:
        pytest.skip("becoming another user needs root")
    with Dispatcher([scripted]) as dispatcher:
        dispatcher.score(completions=["a"])
        path = dispatcher.stats()["state_socket"]
        # The folder is open to all now: the server itself checks who connects.
        runtime.chmod(0o755)
        runtime.parent.chmod(0o755)
        os.chmod(path, 0o777)
        assert run_python(_STRANGER, path, timeout=100).stdout.strip() == "b''"


_STRANGER = """
import os, socket, sys
os.setuid(65534)
client = socket.socket(socket.AF_UNIX)
client.settimeout(60)
client.connect(sys.argv[1])
try:
    client.sendall(b"GET /state HTTP/1.1\\r\\nHost: x\\r\\n\\r\\n")
    print(client.recv(100))
except ConnectionError:
    print(b"")
"""

"""The start of a server: it is alive at once, and ready once its functions can run."""

from __future__ import annotations

import http.client
import json
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import psutil
import pytest

from tests.serve.serving import until

REWARDS = """
import time
from pathlib import Path
import guerdon

class Model(guerdon.StatefulReward):
    def setup(self) -> None:
        Path("began").touch()
        while Path("wait").exists():
            time.sleep(0.01)
        if Path("broken").exists():
            raise FileNotFoundError("no weights")

    def score(self, completion: str) -> float:
        return 1.0

model = Model()
"""


@contextmanager
def started(folder: Path) -> Iterator[tuple[subprocess.Popen[str], int]]:
    """A server that may not be ready, and its port."""
    (folder / "rewards.py").write_text(REWARDS)
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        port = found.getsockname()[1]
    command = [sys.executable, "-m", "guerdon", "serve", "rewards.py", "--workers", "1", "--port", str(port)]
    process = subprocess.Popen(command, cwd=folder, stderr=subprocess.PIPE, text=True)
    try:
        yield process, port
    finally:
        process.kill()
        process.wait()
        assert process.stderr is not None
        process.stderr.close()


def ask(port: int, path: str, body: object = None) -> tuple[int, dict[str, object], str | None]:
    """Status, JSON and `Retry-After`."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=30)
    try:
        sent = None if body is None else json.dumps(body)
        connection.request("GET" if sent is None else "POST", path, sent, {"Content-Type": "application/json"})
        answer = connection.getresponse()
        return answer.status, json.loads(answer.read()), answer.getheader("Retry-After")
    finally:
        connection.close()


def test_it_is_ready_once_its_functions_can_run(tmp_path: Path) -> None:
    (tmp_path / "wait").touch()
    with started(tmp_path) as (process, port):
        until((tmp_path / "began").exists, 60)
        assert ask(port, "/health")[0] == 200, "an orchestrator lets it be"
        assert ask(port, "/ready")[:2] == (503, {"status": "starting"})
        status, answer, later = ask(port, "/score", {"completion": "a"})
        assert (status, later) == (503, "1")
        assert "starting" in str(answer["error"])
        (tmp_path / "wait").unlink()
        assert process.stderr is not None
        assert "serving Model at" in process.stderr.readline()
        assert ask(port, "/ready")[0] == 200
        assert ask(port, "/score", {"completion": "a"})[1]["reward"] == 1.0


@pytest.mark.fault(
    "a reward server's function can't be loaded, or its setup() fails",
    sees="`/ready` never says 200; the reason on stderr, and exit code 2",
)
def test_one_whose_functions_can_not_run_ends(tmp_path: Path) -> None:
    (tmp_path / "broken").touch()
    with started(tmp_path) as (process, _):
        _, errors = process.communicate(timeout=60)
    assert process.returncode == 2
    assert "'Model' setup() failed: FileNotFoundError: no weights" in errors
    assert "serving" not in errors


@pytest.mark.parametrize(("sign", "code"), [(signal.SIGTERM, 0), (signal.SIGKILL, -signal.SIGKILL)])
def test_a_signal_ends_the_check_too(tmp_path: Path, sign: signal.Signals, code: int) -> None:
    (tmp_path / "wait").touch()
    with started(tmp_path) as (process, _):
        until((tmp_path / "began").exists, 60)
        below = psutil.Process(process.pid).children(recursive=True)
        process.send_signal(sign)
        _, errors = process.communicate(timeout=30)
    assert (process.returncode, errors) == (code, "")
    assert below
    deadline = time.monotonic() + 30
    while any(one.is_running() and one.status() != psutil.STATUS_ZOMBIE for one in below):
        assert time.monotonic() < deadline, "the check goes on"
        time.sleep(0.05)

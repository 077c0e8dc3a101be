"""The start of a server: it is alive at once, and ready once its functions can run."""

from __future__ import annotations

import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import psutil
import pytest

from tests.clock import eventually as until
from tests.processes import gone
from tests.serve.serving import RunningServer

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
def started(folder: Path) -> Iterator[RunningServer]:
    """A server that may not be ready."""
    (folder / "rewards.py").write_text(REWARDS)
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        port = found.getsockname()[1]
    command = [sys.executable, "-m", "guerdon", "serve", "rewards.py", "--workers", "1", "--port", str(port)]
    process = subprocess.Popen(command, cwd=folder, stderr=subprocess.PIPE, text=True)
    try:
        yield RunningServer(process, port)
    finally:
        process.kill()
        process.wait()
        assert process.stderr is not None
        process.stderr.close()


def test_it_is_ready_once_its_functions_can_run(tmp_path: Path) -> None:
    (tmp_path / "wait").touch()
    with started(tmp_path) as one:
        until((tmp_path / "began").exists)
        assert one.ask("GET", "/health").status == 200, "an orchestrator lets it be"
        ready = one.ask("GET", "/ready")
        assert (ready.status, ready.json) == (503, {"status": "starting"})
        answer = one.post("/score", {"completion": "a"})
        assert (answer.status, answer.headers["retry-after"]) == (503, "1")
        assert "starting" in answer.json["error"]
        (tmp_path / "wait").unlink()
        assert one.process.stderr is not None
        assert "serving Model at" in one.process.stderr.readline()
        assert one.ask("GET", "/ready").status == 200
        assert one.post("/score", {"completion": "a"}).json["reward"] == 1.0


@pytest.mark.fault(
    "a reward server's function can't be loaded, or its setup() fails",
    sees="`/ready` never says 200; the reason on stderr, and exit code 2",
)
def test_one_whose_functions_can_not_run_ends(tmp_path: Path) -> None:
    (tmp_path / "broken").touch()
    with started(tmp_path) as one:
        code, errors = one.wait()
    assert code == 2
    assert "'Model' setup() failed: FileNotFoundError: no weights" in errors
    assert "serving" not in errors


@pytest.mark.parametrize(("sign", "code"), [(signal.SIGTERM, 0), (signal.SIGKILL, -signal.SIGKILL)])
def test_a_signal_ends_the_check_too(tmp_path: Path, sign: signal.Signals, code: int) -> None:
    (tmp_path / "wait").touch()
    with started(tmp_path) as one:
        until((tmp_path / "began").exists)
        below = [child.pid for child in psutil.Process(one.process.pid).children(recursive=True)]
        assert one.end(sign, patience=30) == (code, "")
    assert below
    until(lambda: gone(below), "the check goes on", seconds=30)

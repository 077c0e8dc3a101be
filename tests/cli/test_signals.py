"""The command as a process of its own: pipes that close, Ctrl-C, a terminal."""

from __future__ import annotations

import json
import os
import pty
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.cli.conftest import write_rewards, write_rows
from tests.clock import eventually

COMMAND = [sys.executable, "-m", "guerdon", "score"]
SLOW = """
import time
import guerdon

@guerdon.reward(timeout=600)
def slow(completion: str) -> float:
    time.sleep(float(completion))
    return 1.0
"""


def test_a_reader_that_goes_away_is_no_error(rewards: Path, tmp_path: Path) -> None:
    # More than a pipe and a chunk hold.
    data = write_rows(tmp_path / "data.jsonl", [{"completion": "x" * (100 + row % 2)} for row in range(5000)])
    command = subprocess.Popen(
        [*COMMAND, f"{rewards}:length", str(data), "--keep", "-q"], stdout=subprocess.PIPE, stderr=subprocess.PIPE
    )
    assert command.stdout is not None
    assert json.loads(command.stdout.readline())["index"] == 0
    command.stdout.close()
    assert command.stderr is not None
    with command.stderr as stderr:
        assert stderr.read() == b""
    assert command.wait(100) == 141


def test_ctrl_c_writes_what_was_finished(tmp_path: Path) -> None:
    rewards = write_rewards(tmp_path, SLOW)
    data = write_rows(tmp_path / "data.jsonl", [{"completion": "0"}] * 6 + [{"completion": "500"}] * 4)
    out = tmp_path / "out.jsonl"
    command = subprocess.Popen(
        [*COMMAND, str(rewards), str(data), "-o", str(out), "--chunk", "2"], stderr=subprocess.PIPE
    )
    eventually(lambda: out.exists() and out.read_bytes().count(b"\n") >= 6)
    time.sleep(0.3)
    start = time.monotonic()
    command.send_signal(signal.SIGINT)
    _, stderr = command.communicate(timeout=100)
    assert command.returncode == 130
    assert time.monotonic() - start < 90  # what it waited for takes minutes
    assert "6 of 10 samples were scored and written" in stderr.decode()
    assert [json.loads(line)["index"] for line in out.read_text().splitlines()] == list(range(6))


@pytest.mark.parametrize("quiet", [False, True])
def test_progress_is_drawn_on_a_terminal_only(rewards: Path, data: Path, quiet: bool) -> None:
    terminal, end = pty.openpty()
    with os.fdopen(terminal, "rb", buffering=0) as screen:
        options = ["--quiet"] if quiet else []
        ended = subprocess.run(
            [*COMMAND, str(rewards), str(data), *options], stdout=subprocess.PIPE, stderr=end, check=False
        )
        os.close(end)
        drawn = b""
        try:
            while piece := screen.read(4096):
                drawn += piece
        except OSError:  # how Linux says that the other end is gone
            pass
    assert ended.returncode == 0
    assert len(ended.stdout.splitlines()) == 4
    assert (b"4/4 samples" in drawn) is not quiet
    assert (b"function" in drawn) is not quiet

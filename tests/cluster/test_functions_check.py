"""The check of functions on a node, whatever their `setup()` does."""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path

import pytest

from guerdon import Dispatcher, RegistrationError, StatefulReward, reward
from guerdon._functions import functions_check
from guerdon._lanes.remote.agent import NodeAgent
from guerdon._lanes.remote.engine_setup import pack
from guerdon._lanes.remote.ray.functions_check import check_functions
from tests.clock import eventually
from tests.processes import gone


class WritesEverywhere(StatefulReward):
    """It writes into whatever is open."""

    def setup(self) -> None:
        for descriptor in range(3, 10):
            try:
                os.write(descriptor, b'loading...\n[1]\n"text"\n{"function": 99}\n{"function": [0]}\n')
                os.write(descriptor, b"[" * 100_000 + b"\n")
            except OSError:
                continue

    def score(self, completion: str) -> float:
        return 1.0


class Hangs(StatefulReward):
    """It stops the process that is to end it, and leaves a process behind that holds all files."""

    def __init__(self, notes: Path) -> None:
        self.notes = notes

    def setup(self) -> None:
        os.kill(os.getppid(), signal.SIGSTOP)
        child = os.fork()
        if child == 0:
            time.sleep(600)
        self.notes.write_text(f"{os.getppid()} {os.getpid()} {child}")
        time.sleep(600)

    def score(self, completion: str) -> float:
        return 1.0


class Ends(StatefulReward):
    def setup(self) -> None:
        os._exit(3)

    def score(self, completion: str) -> float:
        return 1.0


class Reads(StatefulReward):
    def __init__(self, path: Path) -> None:
        self.path = path

    def setup(self) -> None:
        self.text = self.path.read_text()

    def score(self, completion: str) -> float:
        return float(completion in self.text)


def check(*functions: StatefulReward, timeout: float = 60.0) -> None:
    dispatcher = Dispatcher([reward(function, name="judge") for function in functions])
    functions_sent = dispatcher._engine.worker_setup().functions
    agent = NodeAgent(pack(dispatcher._specs, {}, None, functions_sent).data, workers=1)
    try:
        check_functions(agent, timeout)
    finally:
        agent.close()


def test_functions_that_can_run_are_let_through(tmp_path: Path) -> None:
    """Whatever they write among the answers."""
    (tmp_path / "model").write_text("a b c")
    check(Reads(tmp_path / "model"))
    check(WritesEverywhere())


@pytest.mark.parametrize(
    ("function", "expected"),
    [
        (Reads(Path("/models/missing.bin")), r"'judge' setup\(\) failed: FileNotFoundError: .*/models/missing.bin"),
        (Ends(), "'judge' ended the process that loaded it"),
    ],
)
def test_one_that_can_not_is_refused_with_its_reason(function: StatefulReward, expected: str) -> None:
    with pytest.raises(RegistrationError, match=expected):
        check(function)


@pytest.mark.fault(
    "on a node's check, setup() hangs and stops the process that is to end it",
    sees="RegistrationError with its name in time; nothing is left",
)
def test_one_that_hangs_is_ended_with_all_that_it_started(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(functions_check, "_END_S", 0.5)
    started = time.monotonic()
    with pytest.raises(RegistrationError, match=r"'judge' was not ready within 8 s"):
        check(Hangs(tmp_path / "pids"), timeout=8.0)
    assert time.monotonic() - started < 60
    pids = [int(pid) for pid in (tmp_path / "pids").read_text().split()]
    assert len(pids) == 3
    # Killed it is, and in a moment gone.
    eventually(lambda: gone(pids))

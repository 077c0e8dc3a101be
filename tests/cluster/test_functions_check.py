"""The check of functions on a node, whatever their `setup()` does."""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path
from typing import Any

import psutil
import pytest

from guerdon import RegistrationError, StatefulReward, reward
from guerdon._functions import functions_check
from guerdon._lanes.remote.agent import NodeAgent
from guerdon._lanes.remote.engine_setup import EngineSetup
from guerdon._lanes.remote.ray.functions_check import check_functions
from tests.cluster.fake_ray import wait_until
from tests.cluster.in_memory import Clustered, InMemoryCluster


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


class _Kept(Exception):
    """What an agent is made of."""


class _Keeps(InMemoryCluster):
    def start(self, engine: Any, setup: EngineSetup) -> None:
        raise _Kept(setup)


def _agent(function: StatefulReward) -> NodeAgent:
    with Clustered([reward(function, name="judge")], _Keeps(1)) as dispatcher, pytest.raises(_Kept) as kept:
        dispatcher.score(completions=["1"])
    setup: EngineSetup = kept.value.args[0]
    return NodeAgent(setup.data, workers=1)


def test_output_of_a_function_is_skipped_among_the_answers() -> None:
    check_functions(_agent(WritesEverywhere()), 60.0)


def test_a_function_that_ends_the_process_is_named() -> None:
    with pytest.raises(RegistrationError, match="'judge' ended the process that loaded it"):
        check_functions(_agent(Ends()), 60.0)


@pytest.mark.fault(
    "on a node's check, setup() hangs and stops the process that is to end it",
    sees="RegistrationError with its name in time; nothing is left",
)
def test_one_that_hangs_is_ended_with_all_that_it_started(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(functions_check, "_END_S", 0.5)
    started = time.monotonic()
    with pytest.raises(RegistrationError, match=r"'judge' was not ready within 15 s"):
        check_functions(_agent(Hangs(tmp_path / "pids")), 15.0)
    assert time.monotonic() - started < 60
    pids = [int(pid) for pid in (tmp_path / "pids").read_text().split()]
    assert len(pids) == 3
    # Killed it is, and in a moment gone.
    wait_until(lambda: not any(_runs(pid) for pid in pids), 60.0)


def _runs(pid: int) -> bool:
    try:
        return psutil.Process(pid).status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False

"""What tells functions from others': the same in each rank."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from guerdon._system import cpu_count, launcher

PROGRAM = """
import sys
from guerdon import Dispatcher, reward
from guerdon._lanes.remote.engine_setup import pack

WORDS = {"one", "two", "three", "four", "five"}

class Reader:
    def read(self, text): return text in {"a", "b", "c", "d", "e"} or text in WORDS

@reward(timeout=float(sys.argv[1]))
def known(text: str) -> float:
    return float(Reader().read(text) or text in frozenset(("x", "y", "z", "v", "w")))

dispatcher = Dispatcher([known])
print(pack(dispatcher._specs, {}, None, dispatcher._engine.worker_setup().functions).digest.hex())
"""


def test_ranks_with_other_hash_seeds_have_the_same_functions(tmp_path: Path) -> None:
    program = tmp_path / "train.py"
    program.write_text(PROGRAM)

    def digest(seed: str, timeout: str) -> str:
        environ = {**os.environ, "PYTHONHASHSEED": seed, "RANK": seed, "SOME_TOKEN" + seed: "secret"}
        command = [sys.executable, str(program), timeout]
        return subprocess.run(command, env=environ, capture_output=True, text=True, check=True).stdout

    first = digest("1", "2")
    assert len(first) == 65
    assert digest("2", "2") == first
    assert digest("1", "3") != first


def test_the_cores_of_a_host_are_its_launchers(monkeypatch: pytest.MonkeyPatch) -> None:
    """Those of a rank alone where the launcher's are not to be known."""
    monkeypatch.setattr(cpu_count, "allowed_cores", lambda: frozenset({4, 5}))
    monkeypatch.setattr(launcher, "_affinity", lambda environ: frozenset(range(8)))
    monkeypatch.setattr(cpu_count, "usable_cores", lambda: 2)
    monkeypatch.setattr(launcher, "ranks_on_host", lambda environ: 4)
    monkeypatch.delenv("SLURM_STEP_TASKS_PER_NODE", raising=False)
    assert (cpu_count.host_cores(), cpu_count.host_workers()) == (tuple(range(8)), 8)
    monkeypatch.setattr(cpu_count, "usable_cores", lambda: 1)  # a quota
    assert cpu_count.host_workers() == 1
    monkeypatch.setattr(cpu_count, "usable_cores", lambda: 2)
    monkeypatch.setenv("SLURM_STEP_TASKS_PER_NODE", "4")
    assert (cpu_count.host_cores(), cpu_count.host_workers()) == ((4, 5), 2)

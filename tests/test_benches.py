"""The benches run: each of them once, without timing anything."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]


@pytest.mark.parametrize("bench", ["bench_import", "bench_kill", "bench_lanes", "bench_submit"])
def test_a_bench_runs(bench: str, tmp_path: Path) -> None:
    pytest.importorskip("pytest_benchmark")
    command = [sys.executable, "-m", "pytest", "-q", "--benchmark-disable", f"benches/python/{bench}.py"]
    command.append(f"--basetemp={tmp_path / 'bench'}")
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=110)
    assert done.returncode == 0, done.stdout + done.stderr

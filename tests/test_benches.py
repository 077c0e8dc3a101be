"""The benches run: each of them once, without timing anything."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]


# The rows of each bench that run, as `-k` selects them. Rows that take long even once are left out.
CHEAP = {
    "bench_asyncio_backlog": "",
    "bench_cache": "",
    "bench_import": "",
    "bench_judge": "2048",
    "bench_metrics": "counting",
    "bench_stragglers": "not -2 and not -3 and not -4 and not -5",
    "bench_timeout_kill": "",
}
DEAR = {
    "bench_asyncio_lane_lag": "",
    "bench_batch_size": "",
    "bench_batching": "batching and -32",
    "bench_batching_across": "",
    "bench_code": "",
    "bench_cores": "",
    "bench_diagnostics": "asyncio or http",
    "bench_first_reward": "not torch",
    "bench_idle_cpu": "",
    "bench_judge_fleet": "p95",
    "bench_judge_kinds": "",
    "bench_lanes": "",
    "bench_long_prompts": "",
    "bench_process_pools": "",
    "bench_rate_limit": "4",
    "bench_report": "",
    "bench_rewards": "",
    "bench_serve": "trivial or 2000",
    "bench_shared_engine": "",
    "bench_submit": "",
    "bench_trainer_loop_lag": "",
}
BENCHES = CHEAP | DEAR


@pytest.mark.timeout(600)
@pytest.mark.parametrize("bench", [*CHEAP, *(pytest.param(name, marks=pytest.mark.whole) for name in DEAR)])
def test_a_bench_runs(bench: str, tmp_path: Path) -> None:
    run(bench, tmp_path)


def run(bench: str, tmp_path: Path, selected: str = "") -> None:
    pytest.importorskip("pytest_benchmark")
    command = [sys.executable, "-m", "pytest", "-q", "--benchmark-disable", f"benches/python/{bench}.py"]
    command += [f"--basetemp={tmp_path / 'bench'}", "-k", BENCHES.get(bench, selected)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=560)
    assert done.returncode == 0, done.stdout + done.stderr

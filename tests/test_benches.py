"""The benches run: each of them once, without timing anything."""

from __future__ import annotations

import json
import os
import runpy
import subprocess
import sys
from pathlib import Path

import pytest

from benches.training.__main__ import table
from benches.training.bounds import bound, trained_at
from tests import warm_programs
from tests.shared_data import shared_file

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
    "bench_scale": "",
    "bench_serve": "trivial or 2000",
    "bench_shared_engine": "",
    "bench_submit": "",
    "bench_trainer_loop_lag": "",
}


@pytest.mark.timeout(600)
@pytest.mark.parametrize(
    "benches",
    [
        pytest.param(CHEAP, id="cheap"),
        *(pytest.param({name: rows}, marks=pytest.mark.whole, id=name) for name, rows in DEAR.items()),
    ],
)
def test_benches_run(benches: dict[str, str], tmp_path: Path) -> None:
    run(benches, tmp_path)


def run(benches: dict[str, str], tmp_path: Path) -> None:
    """Runs the selected rows of benches in one process."""
    pytest.importorskip("pytest_benchmark")
    selected = " or ".join(f"{bench} and ({rows})" if rows else bench for bench, rows in benches.items())
    command = [sys.executable, "-m", "pytest", "-q", "--benchmark-disable", f"--basetemp={tmp_path / 'bench'}"]
    command += ["-k", selected, *(f"benches/python/{bench}.py" for bench in benches)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=560)
    assert done.returncode == 0, done.stdout + done.stderr


def test_training_goes_on_as_groups_complete() -> None:
    assert trained_at([1, 1, 1, 1], 4, 4) == 5, "all at once: nothing to gain"
    assert trained_at([4, 1, 2, 3], 4, 4) == 5, "a piece a second, as fast as groups come"
    assert trained_at([0, 0, 0, 10], 4, 2) == 12, "the last piece waits for the last group"


@pytest.mark.parametrize(
    ("mode", "short", "long"), [("off", 10, 20), ("mini_batch", 7.75, 20), ("one_step", 6, 10), ("both", 6, 8.875)]
)
def test_bounds(mode: str, short: float, long: float) -> None:
    """Generation and training take 3 s each, rewards up to 4 s or 14 s each."""
    assert bound(mode, 3.0, 3.0, [[1.0, 2.0, 3.0, 4.0]], 4) == pytest.approx(short)
    assert bound(mode, 3.0, 3.0, [[14.0] * 4], 4) == pytest.approx(long)


def test_the_table_says_what_each_mode_saved() -> None:
    run = {
        "wait_s": [4.0] * 6,
        "learned": [0.0] * 4 + [1.0] * 2,
        "trained_s": 3.0,
        "batches": [[1.0, 2.0, 3.0, 4.0]] * 6,
    }
    off = {**run, "mode": "off", "steps_s": [10.0] * 6}
    ahead = {**run, "mode": "one_step", "steps_s": [9.0, 6.5, 6.5, 6.5, 6.5, 3.0]}
    lines = table({"off": [off] * 3, "one_step": [ahead] * 3})
    assert "| one_step | 6.500 (6.500 to 6.500) | -35.0 % | -25.2 % | 6.000 | 87.5% | 1.0000 ± 0.0000 |" in lines
    assert "generation 3.000 s, training 3.000 s, rewards 4.000 s" in lines[-1]


def test_a_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("trl")
    env = {**os.environ, "GUERDON_SHARED": str(shared_file("gsm8k_train.jsonl").parents[1])}
    out = tmp_path / "runs.jsonl"
    options = "--runs 1 --steps 2 --learning-steps 1 --scale 2000 --modes both"
    monkeypatch.setattr(sys, "argv", ["benches.training", *options.split(), "--out", str(out)])
    monkeypatch.setattr(subprocess, "run", lambda command, **_: warm_programs.run(command[1:], ROOT, env))
    runpy.run_path(str(ROOT / "benches/training/__main__.py"), run_name="__main__")
    shown = capsys.readouterr()
    assert "| both |" in shown.out, shown.err
    measured = json.loads(out.read_text())
    assert len(measured["steps_s"]) == len(measured["rewards"]) == len(measured["batches"]) == 2
    assert len(measured["learned"]) == 1
    assert all(len(groups) == 8 for groups in measured["batches"])

"""The bench of training modes: its bounds, its table, and one run of it that times nothing."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from benches.training.__main__ import table
from benches.training.bounds import bound, trained_at
from tests.shared_data import shared_file

ROOT = Path(__file__).parents[1]


def test_training_goes_on_as_groups_complete() -> None:
    assert trained_at([1, 1, 1, 1], 4, 4) == 5, "all at once: nothing to gain"
    assert trained_at([4, 1, 2, 3], 4, 4) == 5, "a piece a second, as fast as groups come"
    assert trained_at([0, 0, 0, 10], 4, 2) == 12, "the last piece waits for the last group"


@pytest.mark.parametrize(
    ("mode", "short", "long"), [("off", 10, 20), ("mini_batch", 7.75, 20), ("one_step", 6, 10), ("both", 6, 8.875)]
)
def test_bounds(mode: str, short: float, long: float) -> None:
    """Of generation and training of 3 s each, rewards of up to 4 s or of 14 s each."""
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


def test_a_run(tmp_path: Path) -> None:
    pytest.importorskip("trl")
    shared = shared_file("gsm8k_train.jsonl").parents[1]
    out = tmp_path / "runs.jsonl"
    options = "--runs 1 --steps 2 --learning-steps 1 --scale 2000 --modes both"
    command = [sys.executable, "-m", "benches.training", *options.split()]
    done = subprocess.run(
        [*command, "--out", str(out)],
        cwd=ROOT,
        env={**os.environ, "GUERDON_SHARED": str(shared)},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "| both |" in done.stdout
    measured = json.loads(out.read_text())
    assert len(measured["steps_s"]) == len(measured["rewards"]) == len(measured["batches"]) == 2
    assert len(measured["learned"]) == 1
    assert all(len(groups) == 8 for groups in measured["batches"])

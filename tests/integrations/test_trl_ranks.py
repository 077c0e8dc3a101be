"""TRL's trainer on several ranks, unmodified, with a dispatcher's columns (L-2 of integrations/trl/host.py)."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("trl")

from tests.integrations import functions


def run_ranks(ranks: int, folder: Path, *arguments: str, script: str = "two_ranks") -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc_per_node", str(ranks)]
    return subprocess.run(
        [*command, "-m", f"tests.integrations.{script}", str(folder), *arguments],
        cwd=Path(__file__).parents[2],
        capture_output=True,
        text=True,
        timeout=280,
        env={**os.environ, "TMPDIR": str(folder)},
        check=False,
    )


def test_row_25_two_ranks_get_the_rewards_of_one(tmp_path: Path) -> None:
    """Acceptance 25: through the unmodified trainer, with the host's cores shared between the ranks."""
    done = run_ranks(2, tmp_path, "rewards")
    assert done.returncode == 0, done.stderr[-4000:]
    reports = [json.loads((tmp_path / f"rank{rank}.json").read_text()) for rank in range(2)]
    assert all(report["workers"] == max(1, report["cores"] // 2) for report in reports)
    for report in reports:
        assert report["rewards"]["vowels"] == pytest.approx(
            [functions.share(text, "aeiou") for text in report["completions"]], abs=1e-6
        )
        assert set(report["rewards"]["group_size"]) == {4.0}
        assert report["rewards"] == reports[0]["rewards"]
    # The limit of a key is both ranks': of the first of two steps they come one after the other, not two at a time.
    calls = sorted(float(line) for line in (tmp_path / "calls").read_text().splitlines())
    half = len(calls) // 2
    assert calls[half - 1] - calls[0] >= (half - 1) * 0.1 * 0.75


def test_row_25_failures_of_one_rank_end_both_with_the_same_error(tmp_path: Path) -> None:
    """Acceptance 25: more failures than allowed on one rank end both, within 10 s."""
    done = run_ranks(2, tmp_path, "fail")
    assert done.returncode != 0
    reports = [json.loads((tmp_path / f"rank{rank}.json").read_text()) for rank in range(2)]
    assert reports[0]["error"] == reports[1]["error"]
    assert reports[0]["error"].startswith(
        "RewardFailureError: rank 1: reward function 'rank_one_fails' failed on 8 of 8"
    )
    assert all(report["seconds"] < 10 for report in reports)

"""TRL's trainer on several ranks, unmodified, with a dispatcher's columns."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("trl")

from tests.integrations.trl import reward_functions
from tests.integrations.trl.torchrun import run_warm_ranks

pytestmark = pytest.mark.timeout(600)  # two processes import all that training needs


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """One launch wrote here: runs that work, and runs that fail, with which it ends."""
    made = tmp_path_factory.mktemp("ranks")
    done = run_warm_ranks(made, "tests.integrations.trl.two_ranks")
    assert done.returncode != 0
    assert len(list(made.glob("always?.json"))) == 2, done.stderr[-4000:]
    return made


def reports(folder: Path, what: str) -> list[dict[str, Any]]:
    return [json.loads((folder / f"{what}{rank}.json").read_text()) for rank in range(2)]


def test_row_25_two_ranks_get_the_rewards_of_one(folder: Path) -> None:
    """Through the unmodified trainer, with the host's cores shared between the ranks."""
    works = reports(folder, "works")
    assert all(report["workers"] == max(1, report["cores"] // 2) for report in works)
    for report in works:
        assert report["rewards"]["vowels"] == pytest.approx(
            [reward_functions.share(text, "aeiou") for text in report["completions"]], abs=1e-6
        )
        assert set(report["rewards"]["group_size"]) == {4.0}
        assert report["rewards"] == works[0]["rewards"]
    # The limit of a key is both ranks': of the first of two steps they come one after the other,
    # not two at a time.
    calls = sorted(float(line) for line in (folder / "calls").read_text().splitlines())
    half = len(calls) // 2
    assert calls[half - 1] - calls[0] >= (half - 1) * 0.1 * 0.75


def test_two_ranks_with_one_engine_get_the_same_rewards(folder: Path) -> None:
    """With all cores of the host as workers of that engine."""
    shared = reports(folder, "shared")
    assert shared[0]["engines"] == shared[1]["engines"]
    assert len(shared[0]["engines"]) == 1
    for report in shared:
        assert report["workers"] == report["cores"]
        assert report["rewards"]["vowels"] == pytest.approx(
            [reward_functions.share(text, "aeiou") for text in report["completions"]], abs=1e-6
        )
        assert report["rewards"] == shared[0]["rewards"]


def test_row_25_failures_of_one_rank_end_both_with_the_same_error(folder: Path) -> None:
    """More failures than allowed on one rank end both, within 10 s where nothing else runs."""
    fails = reports(folder, "fails")
    assert fails[0]["error"] == fails[1]["error"]
    failed = "'rank_one_fails' failed on 32 of its last 64 samples on 2 ranks (limit 25 %), in this batch on 8 of 16: 8 error"
    assert fails[0]["error"].startswith(f"RewardFailureError: reward function {failed}")
    assert "First: rank 1, sample 0: ValueError: on this rank" in fails[0]["error"]
    assert all(report["seconds"] < 100 for report in fails)


def test_row_36_one_hard_prompt_ends_no_run(folder: Path) -> None:
    """5 of 8 failures in a batch of one group, on both ranks."""
    for report in reports(folder, "hard"):
        assert "error" not in report
        assert report["step"] == 2


def test_row_36_a_function_that_always_fails_ends_the_run_at_once(folder: Path) -> None:
    always = reports(folder, "always")
    assert always[0]["error"] == always[1]["error"]
    failed = "'always_fails' failed on 16 of 16 samples on 2 ranks (limit 50 %): 16 error"
    assert always[0]["error"].startswith(f"RewardFailureError: reward function {failed}")
    assert [report["step"] for report in always] == [0, 0]


def test_ranks_whose_trainer_runs_in_a_thread_raise_together(folder: Path) -> None:
    """As under Ray Train; a rank that raised alone would leave the other in a collective."""
    threaded = reports(folder, "threaded")
    assert threaded[0]["error"] == threaded[1]["error"]
    assert threaded[0]["error"].startswith(
        "RewardFailureError: rank 1: reward function 'rank_one_fails' failed on 8 of 8"
    )
    assert all(report["seconds"] < 100 for report in threaded)

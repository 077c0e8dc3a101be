"""Rank 0 scores for both ranks where it asks a server for their completions: one launch for all, it
takes the longest."""

from __future__ import annotations

import json
from collections import Counter
from typing import Any

import pytest

pytest.importorskip("trl")

from tests.integrations.trl import reward_functions
from tests.integrations.trl.torchrun import run_ranks

pytestmark = pytest.mark.timeout(600)  # two processes import all that training needs


@pytest.fixture(scope="module")
def ranks(tmp_path_factory: pytest.TempPathFactory) -> list[dict[str, Any]]:
    folder = tmp_path_factory.mktemp("ranks")
    done = run_ranks(folder, "tests.integrations.trl.pipeline.server_ranks")
    assert done.returncode == 0, done.stderr[-4000:]
    return [json.loads((folder / f"rank{rank}.json").read_text()) for rank in range(2)]


def steps(report: dict[str, Any]) -> list[dict[str, Any]]:
    return [entry for entry in report["log"] if "loss" in entry]


@pytest.mark.parametrize("name", ["overlap", "all", "split", "own", "mixed", "first", "resumed"])
def test_all_rows_have_their_own_rewards_and_records(name: str, ranks: list[dict[str, Any]]) -> None:
    for rank in ranks:
        report = rank[name]
        assert "error" not in report
        assert report["open"] == [0] * len(report["open"])
        texts = [completion for _, completion in report["table"]]
        assert report["rewards"]["limited"] == pytest.approx(
            [reward_functions.share(text, "aeiou") for text in texts], abs=1e-6
        )
        assert report["extra"]["text"] == texts
        # The data's own columns came with each row.
        answers = ["?" if index % 3 == 2 else "aeiou"[index % 5] for index in range(12)]
        given = [answers[int(prompt.rsplit(" ", 1)[1])] for prompt, _ in report["table"]]
        assert report["extra"]["limited/answer"] == given
        if "place_in_group" in report["rewards"]:
            assert report["rewards"]["place_in_group"] == [float(row % 4) for row in range(len(texts))]
        assert report["rewards"] == ranks[0][name]["rewards"]
        assert report["weights"] == ranks[0][name]["weights"]
        assert Counter(report["seen"]).total() == len(report["generated"])


@pytest.mark.parametrize("name", ["overlap", "all", "split", "first", "resumed"])
def test_every_row_is_scored_early_and_on_rank_0(name: str, ranks: list[dict[str, Any]]) -> None:
    for rank, report in enumerate(one[name] for one in ranks):
        assert [entry["guerdon/pipeline/early_frac"] for entry in steps(report)] == [1.0] * len(steps(report))
        assert set(report["extra"]["scored on"]) == {0}
        assert report["started"] == [rank == 0]
        assert report["warnings"] == []
    # One limit for both ranks.
    assert 0 < ranks[0][name]["most at once"] <= 3
    assert ranks[1][name]["most at once"] == 0


@pytest.mark.parametrize("name", ["overlap", "all", "split", "own"])
def test_both_ranks_call_the_same_collectives(name: str, ranks: list[dict[str, Any]]) -> None:
    assert ranks[0][name]["collectives"] == ranks[1][name]["collectives"]


def test_in_evaluation_each_rank_scores_its_own(ranks: list[dict[str, Any]]) -> None:
    for report in (rank["evaluated"] for rank in ranks):
        assert "error" not in report
        assert report["extra"]["scored on"][-4:] == [0, 0, 1, 1]
        assert set(report["extra"]["scored on"][:-4]) == {0}
        assert report["extra"]["text"] == [completion for _, completion in report["table"]]


def test_rank_0_has_the_workers_of_both(ranks: list[dict[str, Any]]) -> None:
    assert [rank["overlap"]["workers"] for rank in ranks] == [[2], [1]]
    assert [rank["own"]["workers"] for rank in ranks] == [[1], [1]]


def test_without_it_each_rank_scores_its_own(ranks: list[dict[str, Any]]) -> None:
    for report in (rank["own"] for rank in ranks):
        assert report["extra"]["scored on"] == ([0] * 8 + [1] * 8) * (len(report["table"]) // 16)
        assert [entry["guerdon/pipeline/early_frac"] for entry in steps(report)] == [0.5, 0.5]
        assert report["started"] == [True]


def test_both_ranks_log_the_same(ranks: list[dict[str, Any]]) -> None:
    """Names that those of the ranks' own scoring have too, and sums that are the mean over
    ranks."""
    for name in ("overlap", "own"):
        first, second = (steps(rank[name]) for rank in ranks)
        names = [{key for key in entry if key.startswith("guerdon/")} for entry in (*first, *second)]
        assert names[0] == names[1] == names[2] == names[3]
        assert names[0] == {key for key in steps(ranks[0]["own"])[0] if key.startswith("guerdon/")}
        for entry in first:
            assert entry["guerdon/limited/failed_frac"] == 0
            assert entry["guerdon/pipeline/reward_s"] > 0
            assert entry["letters"] == pytest.approx(entry["completions/mean_length"] - 1, abs=1e-5)


def test_functions_that_stay_are_reported_once(ranks: list[dict[str, Any]]) -> None:
    for rank, report in enumerate(one["mixed"] for one in ranks):
        assert set(report["extra"]["scored on"]) == {0}
        assert report["started"][:2] == [rank == 0, True]
        assert [entry["guerdon/pipeline/early_frac"] for entry in steps(report)] == [1.0, 1.0]
        warned = [warning for warning in ranks[rank]["made"] if "rank 0 does not score" in warning]
        assert len(warned) == 1
        assert "'vowels', 'place_in_group', because 'vowels' is called once with all samples of its rank" in warned[0]
        assert report["rewards"]["vowels"] == pytest.approx(report["rewards"]["limited"], abs=1e-6)


def test_failures_of_rows_of_any_rank_end_both_with_the_same_error(ranks: list[dict[str, Any]]) -> None:
    errors = [rank["failing"]["error"] for rank in ranks]
    assert errors[0] == errors[1]
    assert errors[0].startswith("RewardFailureError: reward function 'odd_fails' failed on ")
    assert " samples on 2 ranks (limit 10 %)" in errors[0]
    assert all(rank["failing"]["seconds"] < 120 for rank in ranks)
    assert [rank["failing"]["open"] for rank in ranks] == [[0], [0]]


def test_a_run_goes_on_from_its_checkpoint(ranks: list[dict[str, Any]]) -> None:
    for report in (rank["resumed"] for rank in ranks):
        assert [entry["step"] for entry in steps(report)] == [1, 2, 3]
        assert report["weights"] != ranks[0]["first"]["weights"]

"""Rank 0 asks a server for the completions of both ranks, and each rank scores its own as they end;
one launch for all, it takes the longest."""

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


@pytest.mark.parametrize("name", ["overlap", "all", "split", "apart", "mixed", "first", "resumed"])
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


@pytest.mark.parametrize("name", ["overlap", "all", "mixed", "first", "resumed"])
def test_every_row_is_scored_early_and_on_its_own_rank(name: str, ranks: list[dict[str, Any]]) -> None:
    for report in (rank[name] for rank in ranks):
        assert [entry["guerdon/pipeline/early_frac"] for entry in steps(report)] == [1.0] * len(steps(report))
        assert report["extra"]["scored on"] == ([0] * 8 + [1] * 8) * (len(report["table"]) // 16)
        assert report["warnings"] == []


def test_groups_on_two_ranks_are_scored_when_all_is_generated(ranks: list[dict[str, Any]]) -> None:
    for report in (rank["split"] for rank in ranks):
        assert [entry["guerdon/pipeline/early_frac"] for entry in steps(report)] == [0.0, 0.0]


@pytest.mark.parametrize("name", ["overlap", "all", "split"])
def test_both_ranks_call_the_same_collectives(name: str, ranks: list[dict[str, Any]]) -> None:
    assert ranks[0][name]["collectives"] == ranks[1][name]["collectives"]


def test_in_evaluation_each_rank_scores_its_own(ranks: list[dict[str, Any]]) -> None:
    for report in (rank["evaluated"] for rank in ranks):
        assert "error" not in report
        assert report["extra"]["scored on"][-4:] == [0, 0, 1, 1]
        assert report["extra"]["text"] == [completion for _, completion in report["table"]]


@pytest.mark.fault(
    "rank 0, which asks a vLLM server for the completions of all ranks, loses the ranks' store",
    sees="the rewards; a warning says why, and the rows of ranks but 0 are scored when all are generated",
)
def test_ranks_without_a_feed_begin_when_all_is_generated(ranks: list[dict[str, Any]]) -> None:
    for rank, report in enumerate(one["apart"] for one in ranks):
        assert [entry["guerdon/pipeline/early_frac"] for entry in steps(report)] == [0.5, 0.5]
        assert len(report["warnings"]) == (rank == 0)
    assert "can't pass completions on to other ranks (no way)" in ranks[0]["apart"]["warnings"][0]


def test_both_ranks_log_the_same(ranks: list[dict[str, Any]]) -> None:
    for name in ("overlap", "apart"):
        first, second = (steps(rank[name]) for rank in ranks)
        names = [{key for key in entry if key.startswith("guerdon/")} for entry in (*first, *second)]
        assert names[0] == names[1] == names[2] == names[3]
        assert names[0] == {key for key in steps(ranks[0]["apart"])[0] if key.startswith("guerdon/")}
        for entry in first:
            assert entry["guerdon/limited/failed_frac"] == 0
            assert entry["guerdon/pipeline/reward_s"] > 0
            assert entry["letters"] == pytest.approx(entry["completions/mean_length"] - 1, abs=1e-5)


def test_a_function_of_the_whole_batch_sees_its_rank_at_the_end(ranks: list[dict[str, Any]]) -> None:
    for report in (rank["mixed"] for rank in ranks):
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

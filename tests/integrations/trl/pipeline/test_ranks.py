"""Pipelines on two ranks, and on two whose completions come from a server that rank 0 asks: each
scores its own as they end. One launch for all, it takes the longest."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator
from typing import Any

import pytest

pytest.importorskip("trl")

from tests.integrations.trl import reward_functions
from tests.integrations.trl.pipeline.two_ranks import RUNS
from tests.integrations.trl.tiny_trainer import without_times
from tests.integrations.trl.torchrun import run_warm_ranks

pytestmark = pytest.mark.timeout(1100)  # two processes import all that training needs


@pytest.fixture(scope="module")
def ranks(tmp_path_factory: pytest.TempPathFactory) -> Iterator[list[dict[str, Any]]]:
    monkeypatch = pytest.MonkeyPatch()
    folder = tmp_path_factory.mktemp("ranks")
    monkeypatch.setenv("GUERDON_TEST_FOLDER", str(folder))
    done = run_warm_ranks(folder, "tests.integrations.trl.pipeline.two_ranks")
    assert done.returncode == 0, done.stderr[-4000:]
    reports = [json.loads((folder / f"rank{rank}.json").read_text()) for rank in range(2)]
    for rank, report in enumerate(reports):
        lines = (folder / f"groups{rank}.jsonl").read_text().splitlines()
        report["groups"] = [json.loads(line) for line in lines]
    yield reports
    monkeypatch.undo()


@pytest.mark.parametrize("name", ["split mini_batch", "split all", "across one_step"])
def test_ranks_see_what_they_see_without_a_pipeline(name: str, ranks: list[dict[str, Any]]) -> None:
    """The same prompts in the same cycle on each rank; equal first logs and final weights."""
    for rank in ranks:
        ours, plain = rank[name], rank[f"{name.split()[0]} off"]
        assert "error" not in ours
        assert ours["generated"] == plain["generated"]
        assert len(ours["seen"]) == len(plain["seen"]) == len(ours["generated"])
        mine, expected = (without_times(report["log"])[0] for report in (ours, plain))
        for key, value in expected.items():
            if key != "entropy":
                assert mine[key] == pytest.approx(value, abs=1e-6), key
        assert ours["open"] == [0]
    assert ranks[0][name]["weights"] == ranks[1][name]["weights"]


@pytest.mark.parametrize("name", ["across off", "across one_step", "split all"])
def test_row_26_a_group_function_sees_a_group_of_two_ranks_whole_and_once(
    name: str, ranks: list[dict[str, Any]]
) -> None:
    """In order, and its values return to the right samples of the right ranks."""
    table = ranks[0][name]["table"]
    for report in (rank[name] for rank in ranks):
        assert report["rewards"]["place_in_group"] == [float(row % 4) for row in range(len(table))]
    assert ranks[0][name]["extra"]["text"] == [completion for _, completion in table]
    groups = [group for rank in ranks for group in rank["groups"]]
    for start in range(0, len(table), 4):
        whole = [completion for _, completion in table[start : start + 4]]
        prompts = {prompt for prompt, _ in table[start : start + 4]}
        seen = [group for group in groups if group["completions"] == whole and set(group["prompts"]) == prompts]
        assert len(prompts) == 1
        assert len(seen) >= 1
    batches = 3 * sum(3 if "across" in run else 6 for run in RUNS)
    assert len(groups) == batches


def test_a_failure_on_one_rank_ends_both_with_the_same_error(ranks: list[dict[str, Any]]) -> None:
    errors = [rank["failing"]["error"] for rank in ranks]
    assert errors[0] == errors[1]
    failed = (
        "reward function 'on_rank_one' failed on 12 of its last 72 samples on 2 ranks (limit 10 %), in this batch on 12"
    )
    assert errors[0].startswith(f"RewardFailureError: {failed}")
    assert "First: rank 1, sample 0: ValueError: on this rank" in errors[0]
    assert all(rank["failing"]["seconds"] < 120 for rank in ranks)
    assert all(rank["failing"]["open"] == [0] for rank in ranks)


def test_an_override_that_changes_completions_on_one_rank_is_scored_as_in_trl(ranks: list[dict[str, Any]]) -> None:
    """Both ranks call the functions again, so that neither waits for the other."""
    for rank in ranks:
        plain, overlap, one_step = rank["changing"]["rewards"]
        assert overlap == one_step == plain
        assert rank["changing"]["open"] == 0


def test_mini_batches_of_groups_that_lie_on_several_ranks_are_refused(ranks: list[dict[str, Any]]) -> None:
    assert all("split over ranks: the 6 samples" in rank["refused"]["error"] for rank in ranks)


# --- a server that rank 0 asks


@pytest.fixture(scope="module")
def servers(ranks: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [rank["server"] for rank in ranks]


def steps(report: dict[str, Any]) -> list[dict[str, Any]]:
    return [entry for entry in report["log"] if "loss" in entry]


@pytest.mark.parametrize("name", ["overlap", "all", "split", "apart", "mixed", "first", "resumed"])
def test_all_rows_have_their_own_rewards_and_records(name: str, servers: list[dict[str, Any]]) -> None:
    for rank in servers:
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
        assert report["rewards"] == servers[0][name]["rewards"]
        assert report["weights"] == servers[0][name]["weights"]
        assert Counter(report["seen"]).total() == len(report["generated"])


@pytest.mark.parametrize("name", ["overlap", "all", "mixed", "first", "resumed"])
def test_every_row_is_scored_early_and_on_its_own_rank(name: str, servers: list[dict[str, Any]]) -> None:
    for report in (rank[name] for rank in servers):
        assert [entry["guerdon/pipeline/early_frac"] for entry in steps(report)] == [1.0] * len(steps(report))
        assert report["extra"]["scored on"] == ([0] * 8 + [1] * 8) * (len(report["table"]) // 16)
        assert report["warnings"] == []


def test_groups_on_two_ranks_are_scored_when_all_is_generated(servers: list[dict[str, Any]]) -> None:
    for report in (rank["split"] for rank in servers):
        assert [entry["guerdon/pipeline/early_frac"] for entry in steps(report)] == [0.0, 0.0]


@pytest.mark.parametrize("name", ["overlap", "all", "split"])
def test_both_ranks_call_the_same_collectives(name: str, servers: list[dict[str, Any]]) -> None:
    assert servers[0][name]["collectives"] == servers[1][name]["collectives"]


def test_in_evaluation_each_rank_scores_its_own(servers: list[dict[str, Any]]) -> None:
    for report in (rank["evaluated"] for rank in servers):
        assert "error" not in report
        assert report["extra"]["scored on"][-4:] == [0, 0, 1, 1]
        assert report["extra"]["text"] == [completion for _, completion in report["table"]]


@pytest.mark.fault(
    "rank 0, which asks a vLLM server for the completions of all ranks, loses the ranks' store",
    sees="the rewards; a warning says why, and the rows of ranks but 0 are scored when all are generated",
)
def test_ranks_without_a_feed_begin_when_all_is_generated(servers: list[dict[str, Any]]) -> None:
    for rank, report in enumerate(one["apart"] for one in servers):
        assert [entry["guerdon/pipeline/early_frac"] for entry in steps(report)] == [0.5, 0.5]
        assert len(report["warnings"]) == (rank == 0)
    assert "can't pass completions on to other ranks (no way)" in servers[0]["apart"]["warnings"][0]


def test_both_ranks_log_the_same(servers: list[dict[str, Any]]) -> None:
    for name in ("overlap", "apart"):
        first, second = (steps(rank[name]) for rank in servers)
        names = [{key for key in entry if key.startswith("guerdon/")} for entry in (*first, *second)]
        assert names[0] == names[1] == names[2] == names[3]
        assert names[0] == {key for key in steps(servers[0]["apart"])[0] if key.startswith("guerdon/")}
        for entry in first:
            assert entry["guerdon/limited/failed_frac"] == 0
            assert entry["guerdon/pipeline/reward_s"] > 0
            assert entry["letters"] == pytest.approx(entry["completions/mean_length"] - 1, abs=1e-5)


def test_a_function_of_the_whole_batch_sees_its_rank_at_the_end(servers: list[dict[str, Any]]) -> None:
    for report in (rank["mixed"] for rank in servers):
        assert report["rewards"]["vowels"] == pytest.approx(report["rewards"]["limited"], abs=1e-6)


def test_failures_of_rows_of_any_rank_end_both_with_the_same_error(servers: list[dict[str, Any]]) -> None:
    errors = [rank["failing"]["error"] for rank in servers]
    assert errors[0] == errors[1]
    assert errors[0].startswith("RewardFailureError: reward function 'odd_fails' failed on ")
    assert " samples on 2 ranks (limit 10 %)" in errors[0]
    assert all(rank["failing"]["seconds"] < 120 for rank in servers)
    assert [rank["failing"]["open"] for rank in servers] == [[0], [0]]


def test_a_run_goes_on_from_its_checkpoint(servers: list[dict[str, Any]]) -> None:
    for report in (rank["resumed"] for rank in servers):
        assert [entry["step"] for entry in steps(report)] == [1, 2, 3]
        assert report["weights"] != servers[0]["first"]["weights"]

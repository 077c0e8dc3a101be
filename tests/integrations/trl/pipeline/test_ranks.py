"""Pipelines on two ranks: one launch for all, it takes the longest."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest

pytest.importorskip("trl")

from tests.integrations.trl.pipeline.two_ranks import RUNS
from tests.integrations.trl.torchrun import run_ranks

pytestmark = pytest.mark.timeout(600)  # two processes import all that training needs


@pytest.fixture(scope="module")
def ranks(tmp_path_factory: pytest.TempPathFactory) -> Iterator[list[dict[str, Any]]]:
    monkeypatch = pytest.MonkeyPatch()
    folder = tmp_path_factory.mktemp("ranks")
    monkeypatch.setenv("GUERDON_TEST_FOLDER", str(folder))
    done = run_ranks(folder, "tests.integrations.trl.pipeline.two_ranks")
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
        for key, value in plain["first"].items():
            if key != "entropy":
                assert ours["first"][key] == pytest.approx(value, abs=1e-6), key
        assert ours["open"] == 0
    assert ranks[0][name]["weights"] == ranks[1][name]["weights"]


@pytest.mark.parametrize("name", ["across off", "across one_step", "split all"])
def test_row_26_a_group_function_sees_a_group_of_two_ranks_whole_and_once(
    name: str, ranks: list[dict[str, Any]]
) -> None:
    """In order, and its values return to the right samples of the right ranks."""
    table = ranks[0][name]["table"]
    assert ranks[0][name]["places"] == [float(row % 4) for row in range(len(table))]
    assert ranks[0][name]["places"] == ranks[1][name]["places"]
    assert ranks[0][name]["extra"] == [completion for _, completion in table]
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
    assert all(rank["failing"]["open"] == 0 for rank in ranks)


def test_mini_batches_of_groups_that_lie_on_several_ranks_are_refused(ranks: list[dict[str, Any]]) -> None:
    assert all("split over ranks: the 6 samples" in rank["refused"]["error"] for rank in ranks)

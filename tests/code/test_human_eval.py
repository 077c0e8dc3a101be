"""HumanEval's 164 problems: canonical solutions score 1, their mutants 0.

The data is not in the repository; without it these tests are skipped.
"""

from __future__ import annotations

import gzip
import json
import random

import pytest

from guerdon import Dispatcher, code_reward
from tests.code.mutants import mutants, wrong
from tests.code.programs import YES
from tests.shared_data import shared_file


def problems() -> list[dict[str, str]]:
    with gzip.open(shared_file("HumanEval.jsonl.gz"), "rt", encoding="utf-8") as lines:
        return [json.loads(line) for line in lines]


def scores(rows: list[dict[str, str]], programs: list[str], timeout: float = 10.0) -> list[float]:
    """The scores that a dispatcher gives these programs."""
    code = code_reward(check="test", prelude="starter", extract="whole", timeout=timeout)
    with Dispatcher([code]) as dispatcher:
        result = dispatcher.score(
            completions=programs,
            starter=[row["prompt"] for row in rows],
            test=[row["test"] for row in rows],
            entry_point=[row["entry_point"] for row in rows],
        )
    assert not result.failures(), result.failures()[:3]
    found: list[float] = result.rewards.ravel().tolist()
    return found


@pytest.mark.timeout(300)
def test_canonical_solutions_score_one() -> None:
    rows = problems()
    assert len(rows) == 164
    assert scores(rows, [row["canonical_solution"] for row in rows]) == [1.0] * 164
    # As a chat model answers: with the function's head.
    assert scores(rows, [row["prompt"] + row["canonical_solution"] for row in rows]) == [1.0] * 164


def test_objects_that_equal_everything_score_zero() -> None:
    rows = problems()
    programs = [f"{row['prompt']}    pass\n{YES}\n{row['entry_point']} = f\n" for row in rows]
    assert scores(rows, programs) == [0.0] * 164


@pytest.mark.timeout(1200)
@pytest.mark.parametrize("count", [1, pytest.param(5, marks=pytest.mark.whole)])
def test_mutants_score_zero(count: int) -> None:
    """Some of each problem; benches/README.md has the figures for more."""
    order = random.Random(0)
    problem_rows, changed = problems(), []
    for row in problem_rows:
        made = mutants(row["prompt"] + row["canonical_solution"], row["entry_point"])
        order.shuffle(made)
        changed.append((made[: 4 * count], row["test"], row["entry_point"]))
    rows, programs = [], []
    for row, failed in zip(problem_rows, wrong(changed, count), strict=True):
        assert len(failed) == count, row["task_id"]
        rows += [row] * count
        programs += failed
    found = scores(rows, programs, timeout=2.5)
    assert [row["task_id"] for row, score in zip(rows, found, strict=True) if score != 0.0] == []

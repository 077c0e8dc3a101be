"""``guerdon score`` with functions that ``run_if`` skips: rows, tables, failures, exit codes."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.cli.conftest import Command, write_rewards, write_rows

GATED = """
import guerdon

@guerdon.reward(lane="thread")
def right(completion: str) -> float:
    return float(completion == "4")

@guerdon.reward(lane="thread", run_if={"right": "< 1"})
def judge(completion: str) -> float:
    if completion == "bad":
        raise ValueError("no such thing")
    return 0.25

@guerdon.reward(lane="thread", run_if={"right": "< 1"}, otherwise=1.0)
def partial(completion: str) -> float:
    return 0.5
"""


@pytest.fixture
def gated(tmp_path: Path) -> Path:
    return write_rewards(tmp_path, GATED)


def rows(folder: Path, *completions: str) -> Path:
    return write_rows(folder / "data.jsonl", [{"completion": completion} for completion in completions])


def test_a_skipped_cell_in_rows_and_the_table(guerdon: Command, gated: Path, tmp_path: Path) -> None:
    failures = tmp_path / "failures.jsonl"
    ended = guerdon("score", gated, rows(tmp_path, "4", "5"), "--failures", failures)
    assert ended.code == 0
    assert [(row["rewards"], row["status"]) for row in ended.rows] == [
        ({"right": 1.0, "judge": None, "partial": 1.0}, {"right": "ok", "judge": "skipped", "partial": "skipped"}),
        ({"right": 0.0, "judge": 0.25, "partial": 0.5}, {"right": "ok", "judge": "ok", "partial": "ok"}),
    ]
    assert failures.read_text() == ""
    header, right, judge, partial, *_ = (line.split() for line in ended.err.splitlines())
    assert header[3:5] == ["ok", "skipped"]
    assert [right[3:5], judge[3:5], partial[3:5]] == [["2", "0"], ["1", "1"], ["1", "1"]]
    assert (judge[1], partial[1]) == ("0.25", "0.75"), "what was skipped has a part in the mean where it has a number"


def test_skipped_samples_do_not_hide_a_function_that_always_fails(
    guerdon: Command, gated: Path, tmp_path: Path
) -> None:
    """The rate is that of the calls that were made, as everywhere."""
    ended = guerdon("score", gated, rows(tmp_path, *["4"] * 92, *["bad"] * 8), "--max-failure-rate", "0.5")
    assert ended.code != 0
    assert "'judge' failed on 8 of 8 samples" in ended.err
    assert "'right' failed" not in ended.err


def test_a_few_calls_of_many_samples_are_not_judged(guerdon: Command, gated: Path, tmp_path: Path) -> None:
    ended = guerdon("score", gated, rows(tmp_path, *["4"] * 97, *["bad"] * 3), "--max-failure-rate", "0")
    assert ended.code == 0, ended.err

"""``guerdon score`` on 5276 real solutions of GSM8K questions, with the labels that people gave
them."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.cli.conftest import Command, write_rewards, write_rows
from tests.shared_data import gsm8k_solutions

LAST_LINE = '''
import guerdon

def answer(text):
    """What the last line says behind "A:", without thousands commas."""
    last = text.rstrip().rpartition("\\n")[2]
    return last[2:].replace(",", "").strip() if last.startswith("A:") else None

@guerdon.reward(timeout=5)
def correct(completion: str, reference: str) -> float:
    return float(answer(completion) == answer(reference))
'''

MATH_VERIFY = '''
import guerdon
from math_verify import parse, verify

def math(completions, reference, **columns):
    """A reward for a whole batch, as it is written for TRL; math_verify sets its own alarms."""
    return [float(verify(parse(right), parse(text))) for right, text in zip(reference, completions)]

math = guerdon.reward(math, rowwise=True, timeout=60)
'''


def test_a_function_that_compares_the_last_lines_gives_the_labels(guerdon: Command, tmp_path: Path) -> None:
    solutions, out = gsm8k_solutions(), tmp_path / "out.jsonl"
    data = write_rows(tmp_path / "solutions.jsonl", solutions)
    assert guerdon("score", write_rewards(tmp_path, LAST_LINE), data, "-o", out).code == 0
    rows = [json.loads(line) for line in out.read_text().splitlines()]
    assert [row["index"] for row in rows] == list(range(5276))
    assert [row["rewards"]["correct"] == 1.0 for row in rows] == [row["is_correct"] for row in solutions]
    assert sum(bool(row["is_correct"]) for row in solutions) == 2001


@pytest.mark.whole
@pytest.mark.timeout(600)
def test_math_verify_loses_no_sample(guerdon: Command, tmp_path: Path) -> None:
    pytest.importorskip("math_verify")
    solutions, out = gsm8k_solutions(), tmp_path / "out.jsonl"
    data = write_rows(tmp_path / "solutions.jsonl", solutions)
    assert guerdon("score", write_rewards(tmp_path, MATH_VERIFY), data, "-o", out).code == 0
    rows = [json.loads(line) for line in out.read_text().splitlines()]
    assert [row["status"]["math"] for row in rows] == ["ok"] * 5276
    agreeing = sum(
        (row["rewards"]["math"] == 1.0) == one["is_correct"] for row, one in zip(rows, solutions, strict=True)
    )
    # the rest is what math_verify makes of units and fractions, the same as without guerdon
    assert agreeing >= 5200

"""The reward functions of the project's own examples, checked as users check theirs."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from guerdon import reward
from guerdon.testing import (
    assert_bounded,
    assert_deterministic,
    assert_reference_scores,
    assert_rejects,
    assert_row_independent,
)

EXAMPLES = Path(__file__).parents[2] / "examples"
SUMS = [{"prompt": f"{one}+{one + 9}=", "answer": str(2 * one + 9)} for one in range(3, 15)]


@pytest.fixture
def example(monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest) -> Iterator[ModuleType]:
    """The example that the test is named after."""
    monkeypatch.syspath_prepend(str(EXAMPLES))
    name = request.node.name.removeprefix("test_")
    yield import_module(name)
    sys.modules.pop(name, None)


def rows_of(example: ModuleType) -> list[dict[str, Any]]:
    return [
        {"prompt": prompt, "answer": answer, "completion": completion}
        for prompt, answer, completions in zip(example.PROMPTS, example.ANSWERS, example.COMPLETIONS, strict=True)
        for completion in completions
    ]


def test_group_reward(example: ModuleType) -> None:
    rows = rows_of(example)
    assert_reference_scores(example.correct, rows)
    assert_rejects(example.correct, rows)
    assert_bounded(example.correct, rows, low=0, high=1)
    assert_deterministic(example.unlike_others, rows)
    assert_row_independent(example.unlike_others, rows)


def test_gpu_grpo(example: ModuleType) -> None:
    assert_reference_scores(example.right, SUMS)
    assert_deterministic(example.right, SUMS)
    assert_row_independent(example.right, SUMS)
    assert_rejects(example.right, SUMS, probes=["empty", "refusal", "prompt_echo", "all_answers", "longer"])


def test_demo(example: ModuleType) -> None:
    rows = [{"prompt": letter, "completion": text} for letter in "abcd" for text in ("bcd", "cde", "aaa", "b")]
    assert_deterministic(example.counts_on, rows)
    assert_row_independent(example.standing, rows)


@pytest.mark.skipif(not (find_spec("trl") and find_spec("math_verify")), reason="TRL or math-verify is not installed")
def test_math_verify_rowwise(example: ModuleType) -> None:
    accuracy = reward(example.accuracy_reward, rowwise=True, timeout=20)
    rows = [
        {"prompt": [{"role": "user", "content": "How likely?"}], "solution": f"${solution}$"}
        for solution in (example.SOLUTION, r"\sqrt{3}")
    ]
    assert_reference_scores(accuracy, rows)
    assert_rejects(accuracy, rows, probes=["empty", "refusal", "shuffled", "negative", "longer"])

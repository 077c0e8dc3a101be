"""Real data for tests and benches, which is not part of the repository.

It lies in the folder that ``GUERDON_SHARED`` names, by default ``../shared`` beside the repository;
what needs it is skipped where it is absent.
"""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

MODELS = ("6b_finetuning", "6b_verification", "175b_finetuning", "175b_verification")


def shared_file(name: str) -> Path:
    """``data/name`` of the shared folder; skips the test if there is none."""
    folder = Path(os.environ.get("GUERDON_SHARED") or Path(__file__).parents[2] / "shared")
    path = folder / "data" / name
    if not path.is_file():
        pytest.skip(f"there is no {name} in {folder} (GUERDON_SHARED names another folder)")
    return path


def gsm8k_solutions() -> list[dict[str, object]]:
    """5276 solutions of GSM8K questions by four models: question, solution, reference and whether
    people call it right."""
    rows = []
    with shared_file("gsm8k_model_solutions.jsonl").open(encoding="utf-8") as lines:
        for line in lines:
            question = json.loads(line)
            rows += [
                {
                    "prompt": question["question"],
                    "completion": question[model]["solution"],
                    "reference": question["ground_truth"],
                    "is_correct": question[model]["is_correct"],
                }
                for model in MODELS
            ]
    return rows

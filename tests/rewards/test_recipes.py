"""`guerdon profile` has neither errors nor warnings for the recipes in examples/recipes."""

from __future__ import annotations

import runpy
from pathlib import Path

import pytest

from guerdon import rewards
from guerdon.profile import profile

FOLDER = Path(__file__).parents[2] / "examples" / "recipes"
RECIPES = ("gsm8k", "math_boxes", "question_answering", "instructions")


@pytest.mark.timeout(300)
@pytest.mark.parametrize(
    "recipe", [pytest.param(name, marks=pytest.mark.whole if name in RECIPES[:2] else ()) for name in RECIPES]
)
def test_a_profile_of_a_recipe_is_clean(recipe: str) -> None:
    if recipe in RECIPES[:2]:
        pytest.importorskip("math_verify")
    made = runpy.run_path(str(FOLDER / f"{recipe}.py"))
    found = profile(made["functions"], made["rows"])
    assert [finding for _, finding in found.findings() if finding.severity != "info"] == []


def test_a_condition_on_another_reward_is_left_out_of_a_profile() -> None:
    first = rewards.exact_match()
    second = rewards.squad_f1(run_if={"exact_match": "< 1"})
    found = profile([first, second], [{"prompt": "?", "answer": "4", "completion": "4"}], checks=[])
    assert list(found.functions) == ["exact_match", "squad_f1"]

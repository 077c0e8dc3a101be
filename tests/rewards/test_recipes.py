"""`guerdon profile` finds no error in the recipes of docs/rewards.md."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from guerdon import rewards
from guerdon.profile import profile

PAGE = (Path(__file__).parents[2] / "docs" / "rewards.md").read_text(encoding="utf-8")
RECIPES = dict(re.findall(r"^### (.+?)$.*?^```python\n(.*?)^```$", PAGE, re.DOTALL | re.MULTILINE))


def test_the_page_has_the_recipes() -> None:
    assert list(RECIPES) == ["GSM8K", "MATH", "Search and question answering", "Following instructions"]


@pytest.mark.timeout(300)
@pytest.mark.parametrize("recipe", RECIPES)
def test_a_profile_of_a_recipe_has_no_errors(recipe: str) -> None:
    if "math_reward" in RECIPES[recipe]:
        pytest.importorskip("math_verify")
    made: dict[str, Any] = {}
    exec(RECIPES[recipe], made)
    found = profile(made["functions"], made["rows"])
    errors = [one.message for each in found.functions.values() for one in each.findings if one.severity == "error"]
    assert errors == []


def test_a_condition_on_another_reward_is_left_out_of_a_profile() -> None:
    first = rewards.exact_match()
    second = rewards.squad_f1(run_if={"exact_match": "< 1"})
    found = profile([first, second], [{"prompt": "?", "answer": "4", "completion": "4"}], checks=[])
    assert list(found.functions) == ["exact_match", "squad_f1"]

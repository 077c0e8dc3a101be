"""`guerdon profile` has neither errors nor warnings for the recipes of docs/rewards.md, but for one
warning that the page explains."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from guerdon import rewards
from guerdon.profile import profile

PAGE = (Path(__file__).parents[2] / "docs" / "rewards.md").read_text(encoding="utf-8")
RECIPES = dict(re.findall(r"^### (.+?)$.*?^```python\n(.*?)^```$", PAGE, re.DOTALL | re.MULTILINE))

# A solution of MATH has its answer in a box, whatever stands before it.
EXPLAINED = {"MATH": "“the answer is not …” with the right answer"}


def test_the_page_has_the_recipes() -> None:
    assert list(RECIPES) == ["GSM8K", "MATH", "Search and question answering", "Following instructions"]


@pytest.mark.timeout(300)
@pytest.mark.parametrize(
    "recipe", [pytest.param(name, marks=pytest.mark.whole if name in ("GSM8K", "MATH") else ()) for name in RECIPES]
)
def test_a_profile_of_a_recipe_is_clean(recipe: str) -> None:
    if "math_reward" in RECIPES[recipe]:
        pytest.importorskip("math_verify")
    made: dict[str, Any] = {}
    exec(RECIPES[recipe], made)
    found = profile(made["functions"], made["rows"])
    worse = [finding for _, finding in found.findings() if finding.severity != "info"]
    explained = EXPLAINED.get(recipe)
    assert [one for one in worse if one.severity == "error" or explained is None or explained not in one.message] == []


def test_a_condition_on_another_reward_is_left_out_of_a_profile() -> None:
    first = rewards.exact_match()
    second = rewards.squad_f1(run_if={"exact_match": "< 1"})
    found = profile([first, second], [{"prompt": "?", "answer": "4", "completion": "4"}], checks=[])
    assert list(found.functions) == ["exact_match", "squad_f1"]

"""The recipes for HumanEval, MBPP, LiveCodeBench and APPS: they run as the docs and the example
have them, and `guerdon profile` finds nothing wrong with them."""

from __future__ import annotations

import importlib.util
import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from guerdon.profile import profile
from guerdon.profile.checks import CHECKS
from tests.example_runs import EXAMPLES, run

NAMES = ("human_eval", "mbpp", "live_code_bench", "apps")
# The check of the rows' own solutions alone: the others take a minute.
REFERENCE = [check for check in CHECKS if check.id == "reference"]


@pytest.fixture(scope="module")
def recipes() -> Iterator[ModuleType]:
    spec = importlib.util.spec_from_file_location("code_recipes", EXAMPLES / "code_recipes.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    yield module
    for reward in module.REWARDS.values():
        reward.close()


def test_the_example_scores_right_and_wrong_programs(tmp_path: Path) -> None:
    lines = run("code_recipes.py", tmp_path).splitlines()
    assert [line.split(maxsplit=2) for line in lines] == [
        [name, what, str([score] * 4)] for name in NAMES for what, score in (("right", 1.0), ("wrong", 0.0))
    ]


@pytest.mark.parametrize("name", NAMES)
def test_the_columns_of_the_docs_are_those_of_the_example(name: str, recipes: ModuleType) -> None:
    page = (EXAMPLES.parent / "docs" / "code.md").read_text(encoding="utf-8")
    wanted = set(recipes.REWARDS[name].spec.wants.required) - {"completion", "starter", "test_setup_code"}
    assert all(f'"{column}"' in page for column in wanted), wanted


@pytest.mark.timeout(300)
@pytest.mark.parametrize("name", [pytest.param("human_eval", marks=pytest.mark.whole), "mbpp", "apps"])
def test_a_profile_of_a_recipe_is_clean(name: str, recipes: ModuleType) -> None:
    found = profile([recipes.REWARDS[name]], recipes.ROWS[name])
    worse = [finding for _, finding in found.findings() if finding.severity != "info"]
    assert (worse, found.clean) == ([], True)
    assert any("all 4 references scored" in finding.message for _, finding in found.findings())


def test_a_profile_names_the_rows_whose_own_solution_does_not_pass(recipes: ModuleType) -> None:
    rows = [*recipes.ROWS["mbpp"], {**recipes.ROWS["mbpp"][0], "test_list": ["assert digit_sum(345) == 13"]}]
    found = profile([recipes.REWARDS["mbpp"]], rows, checks=REFERENCE)
    (finding,) = [one for _, one in found.findings() if one.check == "reference"]
    assert (finding.severity, [example.row for example in finding.examples]) == ("error", [4])
    assert not found.clean


def test_solutions_without_a_fence_are_tried_in_one(recipes: ModuleType) -> None:
    rows = [
        {**row, "solution": str(row["solution"]).split("```python\n")[1].removesuffix("```\n")}
        for row in recipes.ROWS["apps"]
    ]
    found = profile([recipes.REWARDS["apps"]], rows, checks=REFERENCE)
    assert found.clean
    assert any("all 4 references scored, in the form 'fenced'" in finding.message for _, finding in found.findings())


@pytest.mark.timeout(300)
def test_the_command_finds_a_recipe_clean(tmp_path: Path) -> None:
    run("code_recipes.py", tmp_path, f"--data={tmp_path}")
    assert [len(_lines(tmp_path / f"{name}.jsonl")) for name in NAMES] == [4] * 4
    command = [
        *(sys.executable, "-m", "guerdon", "profile", f"{EXAMPLES / 'code_recipes.py'}:live_code_bench"),
        *(str(tmp_path / "live_code_bench.jsonl"), "--reference", "{solution}", "--json"),
    ]
    ended = subprocess.run(command, capture_output=True, text=True, check=False)
    assert ended.returncode == 0, ended.stdout + ended.stderr
    assert json.loads(ended.stdout)["clean"]
    assert "all 4 references scored" in ended.stdout


def _lines(path: Path) -> list[Any]:
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]

"""The scripts in examples/ run and show what they are there to show (the demo:
tests/integrations/test_demo.py)."""

from __future__ import annotations

import ast
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

from guerdon import Dispatcher, judge, parse
from tests.example_runs import EXAMPLES, run


@pytest.mark.parametrize("recipe", sorted(path.name for path in (EXAMPLES / "recipes").glob("*.py")))
def test_a_recipe_prints_what_it_says(recipe: str, tmp_path: Path) -> None:
    if recipe in ("gsm8k.py", "math_boxes.py"):
        pytest.importorskip("math_verify")
    docstring = ast.get_docstring(ast.parse((EXAMPLES / "recipes" / recipe).read_text(encoding="utf-8"))) or ""
    printed = textwrap.dedent(docstring.partition("Prints:\n")[2])
    assert run(f"recipes/{recipe}", tmp_path) == f"{printed}\n"


def test_group_reward(tmp_path: Path) -> None:
    out = run("group_reward.py", tmp_path)
    assert "it is 7  1.50  advantage +0.87" in out


def test_llm_judge(tmp_path: Path) -> None:
    out = run("llm_judge.py", tmp_path)
    assert "200 ok" in out
    assert " 0 retries" not in out


def test_fake_judge_serves_until_it_is_ended() -> None:
    command = [sys.executable, str(EXAMPLES / "fake_judge.py"), "0"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as server:
        try:
            assert server.stdout is not None
            address = server.stdout.readline().split()[3].rstrip(",")
            asked = judge(
                base_url=address, model="m", prompt="Grade in <score></score>: {completion}", parse=parse.tag("score")
            )
            with Dispatcher([asked]) as dispatcher:
                assert dispatcher.score(completions=["two words", "one"]).rewards.ravel().tolist() == [2.0, 1.0]
        finally:
            server.terminate()


def test_math_verify_rowwise(tmp_path: Path) -> None:
    pytest.importorskip("trl")
    pytest.importorskip("math_verify")
    out = run("math_verify_rowwise.py", tmp_path, trains=True)
    assert "4 ok, 1 timeout" in out
    assert " 1.0  The chance is $\\boxed{0.1575}$." in out


@pytest.mark.timeout(600)
@pytest.mark.parametrize("plain", [[], pytest.param(["--plain"], marks=pytest.mark.whole)], ids=["dispatcher", "plain"])
def test_code_grpo(plain: list[str], tmp_path: Path) -> None:
    pytest.importorskip("trl")
    out = run("code_grpo.py", tmp_path, "--steps=2", *plain, trains=True)
    assert out.count("share of right programs") == 2


@pytest.mark.timeout(600)
def test_gpu_grpo_runs_without_one(tmp_path: Path) -> None:
    """Only that it runs: on a GPU with vLLM it was not tried."""
    pytest.importorskip("trl")
    out = run("gpu_grpo.py", tmp_path, "--cpu", "--steps=2", "--batch=8", "--tokens=4", trains=True)
    assert "one_step" in out
    assert "waiting for rewards" in out


@pytest.mark.timeout(600)
def test_multi_turn_game(tmp_path: Path) -> None:
    pytest.importorskip("trl")
    lines = run("multi_turn_game.py", tmp_path, "--steps=2", trains=True).strip().splitlines()
    assert lines[0].split() == ["step", "near", "calls", "of", "the", "tool", "seconds", "a", "call"]
    steps = [[float(number) for number in line.split()] for line in lines[1:]]
    assert [step for step, *_ in steps] == [1.0, 2.0]
    assert all(near <= 1.0 and calls > 0.0 and seconds >= 0.01 for _, near, calls, seconds in steps)

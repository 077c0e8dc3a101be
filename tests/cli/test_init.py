"""`guerdon init`, `guerdon completion` and the examples of `--help`: the start of a new user."""

from __future__ import annotations

import argparse
import os
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from guerdon.cli import _parser
from tests.cli.conftest import Command


def commands() -> dict[str, argparse.ArgumentParser]:
    (found,) = (each for each in _parser()._actions if isinstance(each, argparse._SubParsersAction))
    return found.choices


def test_init_writes_files_that_score_and_pass_their_own_test(guerdon: Command, tmp_path: Path) -> None:
    ended = guerdon("init", tmp_path / "new")
    assert ended.code == 0
    assert sorted(os.listdir(tmp_path / "new")) == ["data.jsonl", "rewards.py", "test_rewards.py"]
    assert f"cd {tmp_path / 'new'}" in ended.out
    scored = guerdon("score", f"{tmp_path / 'new' / 'rewards.py'}:correct,formatted", tmp_path / "new" / "data.jsonl")
    assert scored.rewards("correct") == [1, 1, 1, 1, 1, 0, 1, 0, 0, 0]
    assert scored.rewards("formatted") == [1, 1, 1, 1, 1, 1, 0, 0, 1, 0]
    tests = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "test_rewards.py"],
        cwd=tmp_path / "new",
        env={name: value for name, value in os.environ.items() if name != "JUDGE_URL"},
        capture_output=True,
        text=True,
    )
    assert tests.returncode == 0, tests.stdout
    assert "6 passed" in tests.stdout


def test_init_replaces_no_file(guerdon: Command, tmp_path: Path) -> None:
    (tmp_path / "data.jsonl").write_text("mine\n")
    assert f"{tmp_path / 'data.jsonl'} is there already" in guerdon.refused("init", tmp_path)
    assert os.listdir(tmp_path) == ["data.jsonl"]
    assert (tmp_path / "data.jsonl").read_text() == "mine\n"


def test_commands_that_draw_name_the_package_that_they_lack(
    guerdon: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "rich", None)
    assert "  pip install 'rich>=13.7'  # for the table of guerdon profile\n" in guerdon("init", tmp_path).out
    assert "draws with rich, --once too: pip install 'rich>=13.7'. Or" in guerdon.refused("top", "--once")


@pytest.mark.parametrize("name", commands())
def test_help_ends_with_two_examples_that_parse(guerdon: Command, name: str) -> None:
    *_, title, one, two = guerdon(name, "--help").out.splitlines()
    assert title == "Examples:"
    for example in (one, two):
        words = shlex.split(example.replace("source <(", "").replace(")", "").partition(" >")[0])
        assert words[:2] == ["guerdon", name]
        assert _parser().parse_args(words[1:]).run is not None


@pytest.mark.parametrize(
    ("words", "completed"),
    [
        (["sc"], ["score"]),
        (["score", "--ma"], ["--map", "--max-failure-rate"]),
        (["top", "--on"], ["--once"]),
        (["score", "dat"], []),  # bash's own completion of files is next
    ],
)
def test_bash_completes_commands_and_their_options(guerdon: Command, words: list[str], completed: list[str]) -> None:
    script = f"{guerdon('completion', 'bash').out}\nCOMP_WORDS=(guerdon {shlex.join(words)})\nCOMP_CWORD={len(words)}\n"
    ended = subprocess.run(
        ["bash", "-c", f'{script}_guerdon\necho "${{COMPREPLY[@]}}"'], capture_output=True, text=True, check=True
    )
    assert ended.stdout.split() == completed


@pytest.mark.parametrize("shell", ["bash", "fish", "zsh"])
def test_completion_scripts_have_every_command_and_option(guerdon: Command, shell: str) -> None:
    script = guerdon("completion", shell).out
    for name, parser in commands().items():
        assert name in script
        for option in parser._option_string_actions:
            long = option.startswith("--")
            shown = option if shell != "fish" else f"-l {option[2:]}" if long else f"-s {option[1:]}"
            assert shown in script

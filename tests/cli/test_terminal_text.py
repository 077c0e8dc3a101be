"""Texts of users on their way to a terminal, and values of options that commands share."""

from __future__ import annotations

import argparse
from pathlib import Path

import pytest

from guerdon._system.safe_text import one_line, printable
from guerdon.cli import main
from guerdon.cli.arguments import steps


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("plain, déjà vu, 数", "plain, déjà vu, 数"),
        ("a\x1b]0;owned\x07b", "a\\x1b]0;owned\\x07b"),
        ("\x9b31m\u202etxt\u200b\ud800", "\\x9b31m\\u202etxt\\u200b\\ud800"),
        ("one\ntwo\r", "one\\ntwo\\r"),
    ],
)
def test_terminal_control_characters_are_escaped(text: str, shown: str) -> None:
    assert printable(text) == shown


def test_line_breaks_stay_where_they_are_wished() -> None:
    assert printable("one\n\ttwo\x1b", keep="\n\t") == "one\n\ttwo\\x1b"


def test_one_line_has_its_width() -> None:
    assert one_line("a \n\t b\x1b", 20) == "a b\\x1b"
    assert one_line("word " * 1000, 10) == "word word…"


def test_a_name_in_an_error_can_not_steer_the_terminal(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["report", str(tmp_path / "a\x1b[2Jb")]) == 2
    assert main(["score", str(tmp_path / "a\x1b[2Jb.py"), "rows.jsonl"]) == 2
    shown = capsys.readouterr().err
    assert "\x1b" not in shown
    assert "x1b[2J" in shown


@pytest.mark.parametrize(
    ("text", "bounds"), [("7", (7, 7)), ("3:9", (3, 9)), ("3:", (3, None)), (":9", (None, 9)), ("0", (0, 0))]
)
def test_steps(text: str, bounds: tuple[int | None, int | None]) -> None:
    assert steps(text) == bounds


@pytest.mark.parametrize("text", ["", ":", "9:3", "one", "1:2:3"])
def test_steps_that_are_none(text: str) -> None:
    with pytest.raises(argparse.ArgumentTypeError, match="expected A:B"):
        steps(text)

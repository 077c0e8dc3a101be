"""Texts of users on their way to a terminal, the one line of a command's progress, and values of
options that commands share."""

from __future__ import annotations

import argparse
import fcntl
import os
import struct
import termios
from collections.abc import Iterator
from pathlib import Path
from typing import TextIO

import pytest

from guerdon._system.safe_text import one_line, printable
from guerdon.cli import main
from guerdon.cli.arguments import steps
from guerdon.cli.profile_progress import ProfileProgress
from guerdon.cli.progress import Progress
from guerdon.profile.profiling import Work


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


@pytest.fixture
def narrow() -> Iterator[tuple[int, TextIO]]:
    """What a terminal of 20 columns shows, and the stream that it is."""
    shown, end = os.openpty()
    fcntl.ioctl(end, termios.TIOCSWINSZ, struct.pack("HHHH", 24, 20, 0, 0))
    with os.fdopen(end, "w", encoding="utf-8") as stream:
        yield shown, stream
    os.close(shown)


def lines(shown: int, count: int) -> list[str]:
    """Each as it was drawn over the one before."""
    drawn = b""
    while drawn.count(b"\x1b[K") < count:  # a terminal hands on what was written bit by bit
        drawn += os.read(shown, 1 << 16)
    text = drawn.decode()
    assert "\n" not in text
    return [line.removesuffix("\x1b[K") for line in text.split("\r")[1:]]


def test_samples_are_counted_in_one_line(narrow: tuple[int, TextIO]) -> None:
    shown, stream = narrow
    progress = Progress(stream, 1000)
    progress.add(1000)
    (line,) = lines(shown, 1)
    assert len(line) < 20
    assert line.endswith(" s left")


def test_a_profile_shows_what_comes_next_in_one_line(narrow: tuple[int, TextIO]) -> None:
    shown, stream = narrow
    progress = ProfileProgress(stream, shown=True)
    progress.show(Work("a_function_with_a_long_name", "survival", 3, 15))
    progress.show(Work("\x1b[31mred", "times", 4, 15))
    progress.show(Work("한국어로_쓴_함수", "times", 5, 15))
    long, odd, wide = lines(shown, 3)
    assert (len(long), long.endswith("long_name: survival")) == (19, True)
    assert "\x1b" not in odd
    assert wide == "함수: times", "a letter may take two of 19 columns"

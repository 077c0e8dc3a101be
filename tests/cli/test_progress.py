"""Progress is one line of the terminal, however narrow that is."""

from __future__ import annotations

import fcntl
import os
import struct
import termios
from collections.abc import Iterator
from typing import TextIO

import pytest

from guerdon.cli.profile_progress import ProfileProgress
from guerdon.cli.progress import Progress
from guerdon.profile.profiling import Work


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

"""The watch on each test of the red team."""

from __future__ import annotations

import time
from collections.abc import Iterator

import pytest

from tests.code.red_team.left_behind import left, library, orphans_come_here


@pytest.fixture
def untouched() -> Iterator[None]:
    """The machine is as it was. A program that overwrites the interpreter's library would have
    every later test pass."""
    before, was_left = library(), left()
    with orphans_come_here():
        yield
        assert library() == before
        deadline = time.monotonic() + 5.0  # what was killed is still ending
        while left() != was_left and time.monotonic() < deadline:
            time.sleep(0.05)
        assert left() == was_left

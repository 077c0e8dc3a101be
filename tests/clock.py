"""Waiting for something, and bounds on times that a machine may miss once, because it paused or had
much else to do. A faulty program misses them each time."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")

TRIES = 3


def eventually(condition: Callable[[], object], what: str = "the condition holds", *, seconds: float = 60.0) -> None:
    """Waits until `condition` holds, and fails where it does not come."""
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, f"not within {seconds} s: {what}"
        time.sleep(0.01)


def one_of_three(attempt: Callable[[], T]) -> T:
    """Returns the result of the first attempt that passes its asserts; the last may raise."""
    for _ in range(TRIES - 1):
        try:
            return attempt()
        except AssertionError:
            continue
    return attempt()

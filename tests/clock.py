"""Bounds on times that a machine may miss once, because it paused or had much else to do.

A faulty program misses them each time.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")

TRIES = 3


def one_of_three(attempt: Callable[[], T]) -> T:
    """Returns the result of the first attempt that passes its asserts; the last may raise."""
    for _ in range(TRIES - 1):
        try:
            return attempt()
        except AssertionError:
            continue
    return attempt()

"""Reward functions in a module that imports next to nothing, so that forks of its workers cost no
more than a bare fork."""

from __future__ import annotations

import time


def work(completion: str) -> float:
    """A millisecond of this thread's CPU time."""
    until = time.thread_time_ns() + 1_000_000
    while time.thread_time_ns() < until:
        pass
    return 1.0


def nothing(completion: str) -> float:
    return 1.0

"""Reward functions that the frameworks' tests share; on threads, where they start at once."""

from __future__ import annotations

import threading
import time

import guerdon
from guerdon import Dispatcher, reward

TOGETHER = threading.Barrier(8, timeout=30)


def correct(text: str, label: str) -> float:
    """1 where the answer is right; "bad" is one that it can't judge."""
    if text.strip() == "bad":
        raise ValueError("no score for this")
    return float(text.strip() == str(label))


def dispatcher(**options: object) -> Dispatcher:
    """`correct` alone, on a thread; `options` are the dispatcher's."""
    return Dispatcher([reward(correct, lane="thread")], **options)  # type: ignore[arg-type]


def meeting() -> Dispatcher:
    """A function that returns only while eight calls of it run."""

    def meet(text: str) -> float:
        TOGETHER.wait()
        return float(len(text))

    return Dispatcher([reward(meet, lane="thread", limit=guerdon.Limit(concurrency=8))])


def slow() -> Dispatcher:
    def sleep(text: str) -> float:
        time.sleep(0.2)
        return float(len(text))

    return Dispatcher([reward(sleep, lane="thread")])

"""Reward functions that the frameworks' tests share; on threads, where they start at once."""

from __future__ import annotations

import threading

import guerdon
from guerdon import Dispatcher, reward


def correct(text: str, label: str) -> float:
    """1 where the answer is right; "bad" is one that it can't judge."""
    if text.strip() == "bad":
        raise ValueError("no score for this")
    return float(text.strip() == str(label))


def dispatcher(**options: object) -> Dispatcher:
    """`correct` alone, on a thread; `options` are the dispatcher's."""
    return Dispatcher([reward(correct, lane="thread")], **options)  # type: ignore[arg-type]


def meeting() -> Dispatcher:
    """A function that returns only while four calls of it run."""
    together = threading.Barrier(4, timeout=30)

    def meet(text: str) -> float:
        together.wait()
        return float(len(text))

    return Dispatcher([reward(meet, lane="thread", limit=guerdon.Limit(concurrency=4))])

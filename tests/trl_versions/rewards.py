"""Reward functions of these tests. Workers import this module: nothing heavy here."""

from __future__ import annotations

import zlib
from typing import Any

from guerdon import group_reward, reward


def vowels(completions: list[str], **kwargs: Any) -> list[float]:
    """TRL's batch contract, as plain TRL would run it too."""
    return [sum(letter in "aeiou" for letter in text) / max(1, len(text)) for text in completions]


async def lengths(prompts: list[str], completions: list[str], answer: list[str], **kwargs: Any) -> list[float | None]:
    return _lengths(completions, answer)


def lengths_now(prompts: list[str], completions: list[str], answer: list[str], **kwargs: Any) -> list[float | None]:
    """`lengths` for a trainer that awaits no reward functions."""
    return _lengths(completions, answer)


lengths_now.__name__ = lengths.__name__  # logged alike


def _lengths(completions: list[str], answer: list[str]) -> list[float | None]:
    return [None if a == "?" else float(len(text)) for text, a in zip(completions, answer, strict=True)]


@reward
def digits(completion: str, answer: str) -> float:
    return float(sum(letter.isdigit() for letter in completion))


@group_reward
def longest(completions: list[str], **columns: Any) -> list[float]:
    most = max(map(len, completions))
    return [float(len(completion) == most) for completion in completions]


@reward
def unlucky(completion: str) -> float:
    """Fails on about a third of the completions, always the same ones."""
    if fails(completion):
        raise ValueError("injected")
    return 1.0 + zlib.crc32(completion.encode()) % 5


def fails(completion: str) -> bool:
    return zlib.crc32(completion.encode()) % 3 == 0

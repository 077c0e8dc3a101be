"""Reward functions that the cluster tests send to agents."""

from __future__ import annotations

import os
import time
from typing import Any

import guerdon

TEXTS = ["x" * (index % 37) + ("?" if index % 11 == 0 else "") + ("ä€"[: index % 3]) for index in range(256)]


@guerdon.reward
def length(completion: str) -> float:
    return float(len(completion))


@guerdon.reward
def fickle(completion: str) -> float | str | None:
    if len(completion) % 5 == 0:
        raise ValueError("five")
    return (None, "text", 0.5, 1e300)[len(completion) % 4]  # type: ignore[return-value]


@guerdon.group_reward
def ranks(completions: list[str]) -> list[float]:
    return [float(position) for position, _ in enumerate(completions)]


def of_lists(prompts: list[str], completions: list[str], **columns: Any) -> list[float]:
    return [float(len(prompt) + len(completion)) for prompt, completion in zip(prompts, completions, strict=True)]


@guerdon.reward(batch_size=16)
def gathered(completions: list[str]) -> list[float]:
    return [2.0 * len(completion) for completion in completions]


class Prefixed(guerdon.StatefulReward):
    """Has something to set up, and shapes its groups."""

    def setup(self) -> None:
        self.offset = 10.0

    def score(self, completion: str, extra: object) -> float | None:
        return None if completion.endswith("?") else self.offset + len(completion) + float(extra is not None)

    def finish_group(self, scores: list[float | None]) -> list[float | None]:
        best = max((score for score in scores if score is not None), default=0.0)
        return [None if score is None else score / best for score in scores]


class NoSetup(guerdon.StatefulReward):
    def setup(self) -> None:
        raise RuntimeError("no model here")

    def score(self, completion: str) -> float:
        return 1.0


@guerdon.reward
def recorded(completion: str) -> dict[str, object]:
    return {"score": 1.0, "seen": len(completion)}


@guerdon.reward(timeout=6.0)
def sometimes_hangs(completion: str) -> float:
    if completion == "hang":
        time.sleep(60)
    return 1.0


@guerdon.reward
def sometimes_dies(completion: str) -> float:
    if completion == "die":
        os._exit(3)
    return float(len(completion))


@guerdon.reward
def slow(completion: str) -> float:
    time.sleep(0.02)
    return float(len(completion))


@guerdon.reward
def printing(completion: str) -> float:
    print(f"scoring {completion}")
    return 1.0

"""Reward functions that the cluster tests send to agents."""

from __future__ import annotations

import os
import time

import guerdon


class NoSetup(guerdon.StatefulReward):
    def setup(self) -> None:
        raise RuntimeError("no model here")

    def score(self, completion: str) -> float:
        return 1.0


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

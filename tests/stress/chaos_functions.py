"""Reward functions of the chaos soak, one for each way of being called on each lane; see
`tests.contract.scripts`. Workers import this module."""

from __future__ import annotations

import os
from typing import Any

from guerdon import StatefulReward, group_reward, reward
from tests.contract.scripts import Cell, aplay, play, play_all, value_of

TIMEOUT = 0.5
BOUNDS: Any = {"timeout": TIMEOUT, "grace": 0.1}


@reward(**BOUNDS)
def plain(completion: str, plain_cell: Cell) -> object:
    return play(completion, plain_cell)


@reward(**BOUNDS)
def recorded(completion: str, recorded_cell: Cell) -> object:
    return {"score": play(completion, recorded_cell), "number": recorded_cell.sample}


@group_reward(**BOUNDS)
def grouped(completions: list[str], grouped_cell: list[Cell]) -> list[object]:
    return play_all(completions, grouped_cell)


def whole(completions: list[str], whole_cell: list[Cell], **columns: Any) -> list[object]:
    """TRL's batch contract: one call a batch, in a worker of its own."""
    return play_all(completions, whole_cell)


class Stateful(StatefulReward):
    """Has state of its worker's, and doubles the scores of its groups."""

    def setup(self) -> None:
        self.home = os.getpid()

    def score(self, completion: str, stateful_cell: Cell) -> object:
        assert self.home == os.getpid(), "setup() ran elsewhere"
        return play(completion, stateful_cell)

    def finish_group(
        self, scores: list[float | None], completions: list[str], stateful_cell: list[Cell]
    ) -> list[float | None]:
        for score, text, cell in zip(scores, completions, stateful_cell, strict=True):
            assert score is None or score == value_of(text, cell.sample), "a score of another sample"
        return [None if score is None else 2 * score for score in scores]


@reward(lane="thread")
def threaded(completion: str, threaded_cell: Cell) -> object:
    return play(completion, threaded_cell)


@group_reward(lane="thread")
def threaded_group(completions: list[str], threaded_group_cell: list[Cell]) -> list[object]:
    return play_all(completions, threaded_group_cell)


@reward
async def awaited(completion: str, awaited_cell: Cell) -> object:
    return await aplay(completion, awaited_cell)


FUNCTIONS = [
    plain,
    recorded,
    grouped,
    whole,
    reward(Stateful(), name="stateful", **BOUNDS),
    threaded,
    threaded_group,
    awaited,
]

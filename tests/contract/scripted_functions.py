"""Reward functions that follow a script, one per lane and shape; see `tests.contract.scripts`."""

from __future__ import annotations

from typing import Any

from guerdon import Limit, group_reward, reward
from tests.contract.scripts import Cell, aplay, aplay_all, play, play_all

LONG = 60.0
SHORT = 2.5


@reward(timeout=LONG, retries=1)
def killable(completion: str, killable_cell: Cell) -> object:
    return play(completion, killable_cell)


@group_reward(timeout=LONG)
def killable_group(completions: list[str], killable_group_cell: list[Cell]) -> list[object]:
    return play_all(completions, killable_group_cell)


def killable_batch(completions: list[str], killable_batch_cell: list[Cell], **kwargs: Any) -> list[object]:
    return play_all(completions, killable_batch_cell)


def _rows(completions: list[str], killable_row_cell: list[Cell], **kwargs: Any) -> list[object]:
    return play_all(completions, killable_row_cell)


killable_row = reward(_rows, name="killable_row", rowwise=True, timeout=LONG, retries=2)


@reward(lane="thread", timeout=LONG, retries=1, limit=Limit(concurrency=3))
def threaded(completion: str, threaded_cell: Cell) -> object:
    return play(completion, threaded_cell)


@group_reward(lane="thread", timeout=LONG)
def threaded_group(completions: list[str], threaded_group_cell: list[Cell]) -> list[object]:
    return play_all(completions, threaded_group_cell)


@reward(timeout=LONG, retries=2)
async def awaited(completion: str, awaited_cell: Cell) -> object:
    return await aplay(completion, awaited_cell)


@group_reward(timeout=LONG, retries=1)
async def awaited_group(completions: list[str], awaited_group_cell: list[Cell]) -> list[object]:
    return await aplay_all(completions, awaited_group_cell)


async def awaited_batch(completions: list[str], awaited_batch_cell: list[Cell], **kwargs: Any) -> list[object]:
    return await aplay_all(completions, awaited_batch_cell)


@reward(isolation="call", timeout=LONG)
def forked(completion: str, forked_cell: Cell) -> object:
    return play(completion, forked_cell)


@reward(timeout=SHORT, grace=0.2, retries=1)
def hung(completion: str, hung_cell: Cell) -> object:
    return play(completion, hung_cell)


@reward(lane="thread", timeout=SHORT)
def hung_thread(completion: str, hung_thread_cell: Cell) -> object:
    return play(completion, hung_thread_cell)


@reward(timeout=SHORT)
async def hung_await(completion: str, hung_await_cell: Cell) -> object:
    return await aplay(completion, hung_await_cell)


@group_reward(timeout=SHORT, grace=0.2)
def hung_group(completions: list[str], hung_group_cell: list[Cell]) -> list[object]:
    return play_all(completions, hung_group_cell)


EVERY_LANE = [
    killable,
    killable_group,
    killable_batch,
    killable_row,
    threaded,
    threaded_group,
    awaited,
    awaited_group,
    awaited_batch,
]
HANGING = [hung, hung_thread, hung_await, hung_group]

"""Reward functions as users of verl have them, loaded by the configuration that the tests write."""

from __future__ import annotations

import asyncio
import os
from typing import Any

import guerdon


def compute_score(
    data_source: str, solution_str: str, ground_truth: str, extra_info: dict[str, Any], bonus: float = 0.0
) -> Any:
    """verl's contract. "hang" never returns, "raise" raises; else how long the text is."""
    while solution_str == "hang":
        pass
    if solution_str == "raise":
        raise ValueError("no score for this")
    assert data_source == "test"
    return {
        "score": len(solution_str) + bonus,
        "acc": solution_str == ground_truth,
        "pred": solution_str,
        "pid": os.getpid(),
    }


def plain_score(data_source: str, solution_str: str, ground_truth: str, extra_info: dict[str, Any]) -> float:
    return float(len(solution_str)) + extra_info["index"]


async def slow_score(data_source: str, solution_str: str, ground_truth: str, extra_info: dict[str, Any]) -> float:
    await asyncio.sleep(0.2)
    return float(solution_str == ground_truth)


@guerdon.reward(timeout=20)
def length(text: str) -> float:
    if text == "bad":
        raise ValueError("a bad one")
    return float(len(text))


@guerdon.reward(timeout=20)
async def judge(completion: str, extra_info: dict[str, Any]) -> float:
    await asyncio.sleep(0.01)
    return extra_info["index"] / 100


class Rank(guerdon.StatefulReward):
    """The place of a response among those of its prompt; says which ones it saw."""

    def score(self, text: str, uid: str) -> float:
        return float(len(text))

    def finish_group(
        self, scores: list[float | None], uid: list[str], ground_truth: list[str], **columns: Any
    ) -> list[float]:
        assert len(set(uid)) == 1, "one prompt"
        assert [int(index) for index in ground_truth] == sorted(int(index) for index in ground_truth), "in order"
        return [float(sorted(scores).index(score)) for score in scores]


@guerdon.reward(timeout=20, lane="thread")
def noted(text: str, extra_info: dict[str, Any]) -> float:
    """Writes down that it was called."""
    with open(extra_info["log"], "a") as log:
        log.write(f"{text}\n")
    return 0.25


@guerdon.reward(timeout=20)
def picky(text: str) -> float:
    """Runs in a worker process."""
    if len(text) == 3:
        raise ValueError("not one with three letters")
    return 0.5


dispatcher = guerdon.Dispatcher([length, judge], weights=[1.0, 1.0])
ranks = guerdon.Dispatcher([Rank()])
trained = guerdon.Dispatcher([noted, picky, judge, Rank()])
trained_apart = guerdon.Dispatcher([picky, length])
noted_ranks = guerdon.Dispatcher([noted, Rank()], weights=[1.0, 1.0])


def _first(text: str) -> float | None:
    if text == "bad":
        raise ValueError("a bad one")
    return None if text == "mute" else float(text == "right")


def _partial(text: str) -> float:
    assert text == "wrong", "called for a right answer, or one that could not be judged"
    return 0.25


_judged = guerdon.reward(_first, name="judged", lane="thread")


def _gated(otherwise: float | None) -> guerdon.Dispatcher:
    partial = guerdon.reward(_partial, name="partial", lane="thread", run_if={"judged": "< 1"}, otherwise=otherwise)
    return guerdon.Dispatcher([partial, _judged], max_failure_rate=0.5)


gated = _gated(None)
gated_with_a_number = _gated(0.5)


def _note_and_hold(extra_info: dict[str, Any], what: str) -> bool:
    """Writes down that it was called; whether it may go on: once the file is there, if one is
    named."""
    if what:
        with open(extra_info["log"], "a") as log:
            log.write(f"{what}\n")
    return not extra_info.get("gate") or os.path.exists(extra_info["gate"])


async def held_score(data_source: str, solution_str: str, ground_truth: str, extra_info: dict[str, Any]) -> float:
    go = _note_and_hold(extra_info, ground_truth)
    while not go:
        await asyncio.sleep(0.02)
        go = _note_and_hold(extra_info, "")
    if solution_str == "raise":
        raise ValueError("no score for this")
    return float(len(solution_str))


@guerdon.group_reward(timeout=300)
async def held_ranks(texts: list[str], uid: list[str], extra_info: list[dict[str, Any]], **columns: Any) -> list[float]:
    """The places of a prompt's responses, in verl's order."""
    assert len(set(uid)) == 1, "one prompt"
    order = [info["index"] for info in extra_info]
    assert order == sorted(order), "in order"
    go = _note_and_hold(extra_info[0], uid[0])
    while not go:
        await asyncio.sleep(0.02)
        go = _note_and_hold(extra_info[0], "")
    lengths = [len(text) for text in texts]
    return [float(sorted(lengths).index(length)) for length in lengths]


held = guerdon.Dispatcher([held_ranks])


@guerdon.group_reward(timeout=60, lane="thread")
def noted_places(texts: list[str], extra_info: list[dict[str, Any]], **columns: Any) -> list[float]:
    """The places of a prompt's responses; fails where all are empty."""
    with open(extra_info[0]["log"], "a") as log:
        log.write(f"{extra_info[0]['index']}\n")
    lengths = [len(text) for text in texts]
    if not any(lengths):
        raise ValueError("nothing to compare")
    return [float(sorted(lengths).index(length)) for length in lengths]


places = guerdon.Dispatcher([noted_places])

"""Retries: only those that were asked for, only where another attempt can help, each of them
counted."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from guerdon import Dispatcher, RewardBatch, Status, reward
from tests.contract import misbehaving_functions as behaviours

LANES = ("process", "thread", "asyncio")


def score(
    folder: Path, how: str, times: int, lanes: Sequence[str] = LANES, **options: Any
) -> tuple[RewardBatch, list[list[float]]]:
    """The result of one sample that fails `times` times on each lane, and when its attempts began
    there."""
    functions: list[Any] = []
    for lane in lanes:
        function = behaviours.afails_at_first if lane == "asyncio" else behaviours.fails_at_first
        noted: Any = functools.partial(function, path=str(folder / lane))
        functions.append(reward(noted, lane=lane, name=lane, max_failure_rate=1.0, **options))  # type: ignore[arg-type]
    with Dispatcher(functions, workers=1) as made:
        result = made.score(completions=["c"], times=[times], how=[how])
    return result, [[float(line) for line in (folder / lane).read_text().splitlines()] for lane in lanes]


@pytest.mark.parametrize(
    ("times", "retries", "status"), [(2, 2, Status.OK), (3, 2, Status.ERROR), (1, 0, Status.ERROR)]
)
def test_errors_are_tried_again(times: int, retries: int, status: Status, tmp_path: Path) -> None:
    result, attempts = score(tmp_path, "error", times, retries=retries)
    assert result.status.ravel().tolist() == [status] * 3
    assert result.attempts.ravel().tolist() == [retries + 1] * 3 == [len(each) for each in attempts]
    assert [result.timings[lane]["retries"] for lane in LANES] == [retries] * 3
    assert all(("after" in str(failure)) == (retries > 0) for failure in result.failures())


def test_timeouts_are_tried_again(tmp_path: Path) -> None:
    result, attempts = score(tmp_path, "hang", 1, ["process", "asyncio"], retries=1, timeout=2.5, grace=0.2)
    assert result.status.ravel().tolist() == [Status.OK] * 2
    assert result.attempts.ravel().tolist() == [2] * 2
    assert all(again - first >= 2.4 for first, again in attempts)


def test_values_that_are_no_reward_are_not_tried_again(tmp_path: Path) -> None:
    result, attempts = score(tmp_path, "invalid", 1, retries=5)
    assert result.status.ravel().tolist() == [Status.ERROR] * 3
    assert [len(each) for each in attempts] == [1] * 3


def test_an_answer_that_says_when_to_come_back_is_obeyed(tmp_path: Path) -> None:
    result, attempts = score(tmp_path, "later", 1, retries=1)
    assert result.status.ravel().tolist() == [Status.OK] * 3
    assert all(again - first >= behaviours.Later.retry_after - 0.01 for first, again in attempts)


@pytest.mark.parametrize(
    ("times", "retries", "status", "attempts"),
    [
        (1, 0, Status.OK, 2),  # the one more try that each suspect gets
        (2, 0, Status.CRASHED, 2),
        (2, 1, Status.OK, 3),
        (9, 2, Status.CRASHED, 4),
    ],
)
def test_a_crash_is_tried_once_more_beyond_the_retries(
    times: int, retries: int, status: Status, attempts: int, tmp_path: Path
) -> None:
    result, (begun,) = score(tmp_path, "exit", times, ["process"], retries=retries)
    assert result.status.ravel().tolist() == [status]
    assert result.attempts.ravel().tolist() == [attempts] == [len(begun)]

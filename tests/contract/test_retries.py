"""Retries: only those that were asked for, only where another attempt can help, each of them
counted."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from guerdon import Dispatcher, RewardBatch, Status, reward
from tests.contract import misbehaving_functions as behaviours

LANES = ("process", "thread", "asyncio")


def score(lane: str, folder: Path, how: str, times: int, **options: Any) -> tuple[RewardBatch, list[float]]:
    """The result of one sample that fails `times` times, and when its attempts began."""
    function = behaviours.afails_at_first if lane == "asyncio" else behaviours.fails_at_first
    path = folder / "attempts"
    path.unlink(missing_ok=True)
    with Dispatcher([reward(function, lane=lane, name="failing", **options)], workers=1) as made:
        result = made.score(completions=["c"], path=[str(path)], times=[times], how=[how])
    return result, [float(line) for line in path.read_text().splitlines()]


@pytest.mark.parametrize("lane", LANES)
@pytest.mark.parametrize(
    ("times", "retries", "status"), [(2, 2, Status.OK), (3, 2, Status.ERROR), (1, 0, Status.ERROR)]
)
def test_errors_are_tried_again(lane: str, times: int, retries: int, status: Status, tmp_path: Path) -> None:
    result, attempts = score(lane, tmp_path, "error", times, retries=retries)
    assert result.status.ravel().tolist() == [status]
    assert result.attempts.ravel().tolist() == [retries + 1] == [len(attempts)]
    assert result.timings["failing"]["retries"] == retries
    if status is Status.ERROR:
        assert ("after" in str(result.failures()[0])) == (retries > 0)


@pytest.mark.parametrize("lane", ["process", "asyncio"])
def test_timeouts_are_tried_again(lane: str, tmp_path: Path) -> None:
    result, attempts = score(lane, tmp_path, "hang", 1, retries=1, timeout=2.5, grace=0.2)
    assert result.status.ravel().tolist() == [Status.OK]
    assert result.attempts.ravel().tolist() == [2]
    assert attempts[1] - attempts[0] >= 2.4


@pytest.mark.parametrize("lane", LANES)
def test_values_that_are_no_reward_are_not_tried_again(lane: str, tmp_path: Path) -> None:
    result, attempts = score(lane, tmp_path, "invalid", 1, retries=5)
    assert result.status.ravel().tolist() == [Status.ERROR]
    assert len(attempts) == 1


@pytest.mark.parametrize("lane", LANES)
def test_an_answer_that_says_when_to_come_back_is_obeyed(lane: str, tmp_path: Path) -> None:
    result, attempts = score(lane, tmp_path, "later", 1, retries=1)
    assert result.status.ravel().tolist() == [Status.OK]
    assert attempts[1] - attempts[0] >= behaviours.Later.retry_after - 0.01


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
    result, begun = score("process", tmp_path, "exit", times, retries=retries)
    assert result.status.ravel().tolist() == [status]
    assert result.attempts.ravel().tolist() == [attempts] == [len(begun)]

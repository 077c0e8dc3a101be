"""Stateful rewards: `setup`, `score`, `finish_group` and `close`, on every lane."""

from __future__ import annotations

import math
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from guerdon import Dispatcher, Status, reward
from tests.clock import one_of_three
from tests.contract.stateful_rewards import AsyncShaping, BrokenSetup, Lifecycle, Shaping, SlowSetup

NAN = math.nan
LANES = ("process", "thread", "asyncio")


def lines(path: Path, word: str) -> list[str]:
    return [line for line in path.read_text().splitlines() if line.startswith(word)]


NO_SCORE, NO_FINISH, TOO_SHORT = "ValueError: no score", "ValueError: no finish", ".*1 rewards were returned.*"
# Results of `score` and `finish_group` for a group, and of its samples: a reward, None where
# they abstain, or the pattern of an error's reason.
GROUPS: list[tuple[list[Any], list[Any], list[float | str | None]]] = [
    ([1.0, "error", None, 4.0], ["echo"] * 4, [1.0, NO_SCORE, None, 4.0]),
    ([5.0, 6.0, 7.0, 8.0], ["echo"] * 4, [5.0, 6.0, 7.0, 8.0]),
    ([1.5, "error", None, 4.5], [["double"], 9.0, 3.0, None], [3.0, NO_SCORE, 3.0, None]),
    ([2.0, "error", 3.0, 4.0], ["raise"] * 4, [NO_FINISH, NO_SCORE, NO_FINISH, NO_FINISH]),
    ([2.5, "error", 3.5, 4.5], ["short"] * 4, [TOO_SHORT, NO_SCORE, TOO_SHORT, TOO_SHORT]),
    ([1.0, 2.0, 3.0, 4.0], [["double"], "text", NAN, 8.0], [2.0, ".*'text'.*", ".*nan.*", 8.0]),
    (["error"] * 4, ["raise"] * 4, [NO_SCORE] * 4),
]


@pytest.mark.parametrize("lane", LANES)
def test_a_group_is_finished_from_its_own_scores_in_order(lane: str, tmp_path: Path) -> None:
    """Once, with None where a sample has no score; a group without any is not finished."""
    notes = tmp_path / "groups"
    shaping = (AsyncShaping if lane == "asyncio" else Shaping)(notes)
    own, finish = ([one for group in GROUPS for one in group[column]] for column in (0, 1))
    with Dispatcher([reward(shaping, lane=lane, retries=2)], workers=1, max_failure_rate=1.0) as made:
        result = made.score(completions=["c"] * len(own), own=own, finish=finish, num_generations=4)
    reasons = {failure.sample: failure.reason for failure in result.failures()}
    for sample, expected in enumerate(one for *_, group in GROUPS for one in group):
        status, value = result.status.flat[sample], result.rewards.flat[sample]
        if isinstance(expected, str):
            assert status == Status.ERROR
            assert re.fullmatch(expected, reasons[sample]), reasons[sample]
        else:
            assert status == (Status.ABSTAINED if expected is None else Status.OK)
        np.testing.assert_array_equal(value, np.float32(expected if isinstance(expected, float) else NAN))
    assert len(reasons) == sum(isinstance(one, str) for *_, group in GROUPS for one in group)
    noted = [[one if isinstance(one, float) else None for one in scores] for scores, *_ in GROUPS[:-1]]
    assert sorted(notes.read_text().splitlines()) == sorted(map(str, noted))


@pytest.mark.parametrize("lane", LANES)
def test_a_setup_that_fails_fails_every_cell_with_its_traceback_and_is_tried_again(lane: str, tmp_path: Path) -> None:
    broken = BrokenSetup(tmp_path / "model")
    functions = [reward(broken, lane=lane, name="broken"), reward(lambda own: own, name="other")]
    with Dispatcher(functions, workers=2, max_failure_rate=1.0) as made:
        result = made.score(completions=["c"] * 3, own=[1.0, 2.0, 3.0])
        broken.model.touch()
        assert made.score(completions=["c"] * 3, own=[1.0, 2.0, 3.0]).status.max() == Status.OK
    assert result.status[:, 0].tolist() == [[Status.ERROR, Status.OK]] * 3
    for failure in result.failures():
        assert failure.reason == "setup() failed: RuntimeError: no model here"
        assert "in setup" in (failure.traceback or "")


@pytest.mark.parametrize("lane", ["process", "asyncio"])
def test_a_setup_that_takes_too_long_is_given_up(lane: str) -> None:
    slow = SlowSetup(100.0, wait=lane == "asyncio")
    with Dispatcher([reward(slow, lane=lane, setup_timeout=0.6, grace=0.2)], workers=1) as made:
        result = made.score(completions=["c"] * 2, own=[1.0, 2.0])
    assert result.status.ravel().tolist() == [Status.ERROR] * 2
    for failure in result.failures():
        assert failure.reason.startswith("setup() did not end within the setup_timeout of 0.6 s"), failure.reason


def test_setup_does_not_count_as_the_first_call() -> None:
    with Dispatcher([reward(SlowSetup(3.0), timeout=2.5, setup_timeout=60)], workers=1) as made:
        assert made.score(completions=["c"], own=[1.0]).rewards.ravel().tolist() == [1.0]


@pytest.mark.parametrize("lane", ["thread", "asyncio"])
def test_row_28_once_a_function_of_this_process(lane: str, tmp_path: Path) -> None:
    """On the asyncio lane: set up on the loop that the calls run on, and closed there."""
    with Dispatcher([reward(Lifecycle(tmp_path / "notes", wait=lane == "asyncio"), lane=lane)]) as made:
        for _ in range(3):
            made.score(completions=["c"] * 16, own=[0.002] * 16)
    words = [line.split() for line in (tmp_path / "notes").read_text().splitlines()]
    assert [word for word, *_ in words] == ["setup", *["score"] * 48, "close"]
    assert lane == "thread" or len({(process, thread) for _, process, thread in words}) == 1


def test_row_28_once_a_worker_and_not_closed_when_killed(tmp_path: Path) -> None:
    folders = iter(["1", "2", "3"])
    # Workers have a second for `close()`, in which this machine may stand still.
    one_of_three(lambda: _once_a_worker(tmp_path / next(folders)))


def _once_a_worker(notes: Path) -> None:
    with Dispatcher([reward(Lifecycle(notes))], workers=2) as made:
        for _ in range(4):
            made.score(completions=["c"] * 40, own=[0.002] * 40)
        # the last one ends its worker, twice
        made.score(completions=["c"] * 20, own=[0.002] * 19 + [-1.0])
    setups = [line.split()[1] for line in lines(notes, "setup")]
    closes = [line.split()[1] for line in lines(notes, "close")]
    scores = {line.split()[1] for line in lines(notes, "score")}
    assert len(setups) == len(set(setups))
    assert scores <= set(setups)
    killed = {line.split()[1] for line in lines(notes, "end")}
    assert len(killed) == 2
    assert sorted(closes) == sorted(set(setups) - killed)

"""Rewards that keep something between calls, as a dispatcher runs them."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from guerdon import Dispatcher, StatefulReward, Status, reward


class Counting(StatefulReward):
    """Writes down its setups, its closes and the scores that its groups get."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def setup(self) -> None:
        self._note(f"setup {os.getpid()}")

    def score(self, completion: str) -> float | None:
        if completion == "fail":
            raise ValueError(completion)
        return None if completion == "none" else float(len(completion))

    def finish_group(self, scores: list[float | None], completions: list[str], **columns: Any) -> list[float | None]:
        self._note(f"group {completions} {scores}")
        best = max(score for score in scores if score is not None)
        return [None if score is None else score - best for score in scores]

    def close(self) -> None:
        self._note(f"close {os.getpid()}")

    def _note(self, text: str) -> None:
        with (self.folder / "notes").open("a") as file:
            file.write(text + "\n")


@pytest.mark.fault(
    "a sample of a stateful reward fails in a group",
    sees="its group is finished without it: `None` stands in its place, and it stays failed",
)
@pytest.mark.parametrize("lane", ["process", "thread"])
def test_row_28_a_stateful_reward_is_set_up_and_closed_once(lane: str, tmp_path: Path) -> None:
    """Once per worker, closed once; groups see their own scores in order, None where there is
    none."""
    with Dispatcher([reward(Counting(tmp_path), lane=lane)], workers=1) as made:
        for _ in range(3):
            result = made.score(completions=["a", "fail", "ccc", "none"], num_generations=2)
    np.testing.assert_array_equal(result.rewards[:, :, 0], [[0, np.nan], [0, np.nan]])
    np.testing.assert_array_equal(result.status[:, :, 0], [[0, Status.ERROR], [0, Status.ABSTAINED]])
    notes = (tmp_path / "notes").read_text().splitlines()
    setups = [note for note in notes if note.startswith("setup")]
    closes = [note for note in notes if note.startswith("close")]
    assert len(setups) == len(set(setups)) or lane == "thread"
    assert sorted(note.split()[1] for note in setups) == sorted(note.split()[1] for note in closes)
    assert sorted(note for note in notes if note.startswith("group")) == sorted(
        3 * ["group ['a', 'fail'] [1.0, None]", "group ['ccc', 'none'] [3.0, None]"]
    )

"""Startup crashes: processes that die while loading, in setup(), or as the loaded zygote."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from guerdon import Dispatcher, StatefulReward, reward

TEXTS = [str(index) for index in range(64)]


class DiesOnce(StatefulReward):
    """Its first `setup()` ends its process."""

    def __init__(self, note: Path) -> None:
        self.note = note

    def setup(self) -> None:
        _die_once(self.note)

    def score(self, completion: str) -> float:
        return float(completion)


class DiesOnceLoading:
    """Ends the first process that unpickles it."""

    def __init__(self, note: Path) -> None:
        self.note = note

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        _die_once(self.note)

    def __call__(self, completion: str) -> float:
        return float(completion)


def _die_once(note: Path) -> None:
    try:
        note.touch(exist_ok=False)
    except FileExistsError:
        return
    os._exit(9)


@pytest.mark.fault(
    "the worker is killed in `setup()`, once",
    sees="nothing but a second attempt on one sample: the setup is tried once more on a fresh worker, like a call whose worker died",
)
def test_a_worker_lost_in_setup_costs_one_more_attempt(tmp_path: Path) -> None:
    with Dispatcher([reward(DiesOnce(tmp_path / "note"))], workers=1) as dispatcher:
        result = dispatcher.score(completions=TEXTS)
    assert result.rewards.ravel().tolist() == [float(text) for text in TEXTS]
    assert sorted(result.attempts.ravel().tolist()) == [1] * 63 + [2]


@pytest.mark.fault("the zygote is killed while it loads the functions, once", sees="nothing: another one loads them")
def test_a_loader_lost_while_loading_is_replaced(tmp_path: Path) -> None:
    dies_once = reward(DiesOnceLoading(tmp_path / "note"), name="dies_once")
    with Dispatcher([dies_once], workers=2) as dispatcher:
        result = dispatcher.score(completions=TEXTS)
        assert dispatcher.stats()["worker_loads"] == 0
    assert result.rewards.ravel().tolist() == [float(text) for text in TEXTS]
    assert result.attempts.max() == 1

"""Reward functions that end their process the first time they are loaded or set up. Workers import
this module."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from guerdon import StatefulReward


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

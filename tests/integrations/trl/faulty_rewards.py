"""Reward functions that go wrong. Workers import this module: nothing heavy at its top."""

from __future__ import annotations

import ctypes
import os
import time
from pathlib import Path
from typing import Any

from guerdon import StatefulReward


class TroubledReward(StatefulReward):
    """In every step its first sample never ends, and its second crashes the worker each time."""

    def __init__(self, folder: str) -> None:
        self.folder = Path(folder)

    def score(self, text: str, trainer_state: Any) -> float:
        step = trainer_state.global_step
        if self._mine(f"hangs{step}", text):
            time.sleep(600)
        if self._mine(f"crashes{step}", text):
            ctypes.string_at(0)
        return 1.0

    def _mine(self, name: str, text: str) -> bool:
        """Returns whether this sample is the one of that name: the first that asks."""
        path = self.folder / name
        try:
            with path.open("x") as file:
                file.write(repr(text))
        except FileExistsError:
            return path.read_text() == repr(text)
        return True


class Sitting(StatefulReward):
    """Says which processes it runs in, and takes long."""

    def __init__(self, folder: str) -> None:
        self.folder = Path(folder)

    def score(self, text: str) -> float:
        (self.folder / f"pid{os.getpid()}").touch()
        time.sleep(600)
        return 1.0

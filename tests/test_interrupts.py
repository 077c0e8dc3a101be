"""Ctrl-C wherever it hits: no batch stays under way that nobody can reach."""

from __future__ import annotations

import asyncio
import sys
import time
from collections.abc import Callable
from pathlib import Path
from types import FrameType
from typing import Any

import pytest

import guerdon
from guerdon import Dispatcher, reward

OURS = str(Path(guerdon.__file__).parent)


@reward
async def patient(completion: str) -> float:
    await asyncio.sleep(0 if completion == "quick" else 60)
    return 1.0


class Interrupt:
    """Raises KeyboardInterrupt in this thread where a signal handler could: behind the `place`-th
    call that the package makes once a batch exists, or at the start of a function of its own; at
    the latest where it begins to wait."""

    def __init__(self, place: int) -> None:
        self._left = place
        self._submitted = False
        self.waited = False

    def begin(self) -> None:
        sys.setprofile(self._profile)

    def _profile(self, frame: FrameType, event: str, argument: Any) -> None:
        name = getattr(argument, "__qualname__", "")
        if event == "c_return" and name == "Engine.submit":
            self._submitted = True
        if not self._submitted or not frame.f_code.co_filename.startswith(OURS):
            return
        if event == "c_call" and name in ("Batch.wait", "Batch.fileno"):
            self.waited = True
            self._raise()
        elif event in ("c_return", "call"):
            self._left -= 1
            if self._left < 0:
                self._raise()

    def _raise(self) -> None:
        sys.setprofile(None)
        raise KeyboardInterrupt


@pytest.mark.parametrize("how", ["score", "submit", "ascore", "column"])
def test_no_batch_is_left_wherever_ctrl_c_hits(how: str) -> None:
    def submit() -> None:
        pending = made.submit(**given)
        sys.setprofile(None)
        pending.cancel()
        interrupt.waited = True
        raise KeyboardInterrupt

    with Dispatcher([patient]) as made:
        made.score(completions=["quick"])
        given = {"completions": ["slow"]}
        calls: dict[str, Callable[[], Any]] = {
            "score": lambda: made.score(**given),
            "submit": submit,
            "ascore": lambda: asyncio.run(made.ascore(**given)),
            "column": lambda: made.reward_funcs[0](prompts=None, **given),
        }
        for place in range(200):
            interrupt = Interrupt(place)
            interrupt.begin()
            with pytest.raises(KeyboardInterrupt):
                calls[how]()
            deadline = time.monotonic() + 30
            while made.stats()["open_batches"]:
                assert time.monotonic() < deadline, f"interrupted at place {place}"
                time.sleep(0.001)
            if interrupt.waited:
                break
        assert interrupt.waited
        assert place > 2
        assert made.score(completions=["quick"]).rewards.tolist() == [[[1.0]]]

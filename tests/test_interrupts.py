"""Ctrl-C wherever it hits: no batch stays under way that nobody can reach."""

from __future__ import annotations

import asyncio
import itertools
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from types import FrameType
from typing import Any

import pytest

import guerdon
from guerdon import Dispatcher, read_journal, reward
from tests.clock import eventually, one_of_three
from tests.processes import started_python

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
            eventually(lambda: not made.stats()["open_batches"], f"interrupted at place {place}")
            if interrupt.waited:
                break
        assert interrupt.waited
        assert place > 2
        assert made.score(completions=["quick"]).rewards.tolist() == [[[1.0]]]


def interrupted(program: str) -> float:
    """Sends SIGINT to a program once it has said "now"; the seconds until it has ended.

    It is to print "interrupted" then.
    """
    with started_python(program, says="now", stderr=subprocess.PIPE) as running:
        time.sleep(0.3)  # it begins to wait
        start = time.monotonic()
        running.send_signal(signal.SIGINT)
        out, err = running.communicate(timeout=100)
    assert "interrupted" in out, err
    return time.monotonic() - start


def test_ctrl_c_ends_the_wait_of_close_and_keeps_the_journal(tmp_path: Path) -> None:
    """Closing waits 5 s for a function that doesn't come back."""
    folders = (tmp_path / f"{number}" for number in itertools.count())
    one_of_three(lambda: _wait_of_close_is_interrupted(next(folders)))


def _wait_of_close_is_interrupted(journal: Path) -> None:
    took = interrupted(f"""
        import os, time
        from guerdon import Dispatcher, reward

        def stuck(completion):
            time.sleep(60 if completion == "stuck" else 0)
            return 1.0

        dispatcher = Dispatcher([reward(stuck, lane="thread")], journal={str(journal)!r})
        dispatcher.score(completions=["kept"])
        pending = dispatcher.submit(completions=["stuck"])
        time.sleep(0.5)
        print("now", flush=True)
        try:
            dispatcher.close()
        except KeyboardInterrupt:
            print("interrupted", flush=True)
        os._exit(0)
    """)
    assert took < 4
    assert 1.0 in read_journal(journal)["value"].to_pylist()


def test_ctrl_c_ends_a_look_at_the_workers() -> None:
    """A worker that the kernel holds, here in vfork, doesn't say where it stands: the look waits
    for as long as it may."""
    took = interrupted("""
        import ctypes, os, time
        from guerdon import Dispatcher, reward

        def stuck(completion):
            ctypes.PyDLL(None).vfork()  # its parent waits until this one has ended
            time.sleep(60)

        with Dispatcher([reward(stuck, timeout=60)], workers=1) as dispatcher:
            pending = dispatcher.submit(completions=["a"])
            while not dispatcher.worker_pids():
                time.sleep(0.01)
            time.sleep(0.5)
            print("now", flush=True)
            try:
                dispatcher.dump(timeout=50)
            except KeyboardInterrupt:
                print("interrupted", flush=True)
    """)
    assert took < 20

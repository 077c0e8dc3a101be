"""Reward functions that get stuck in different places. Workers import this module."""

from __future__ import annotations

import asyncio
import os
import signal
import threading
import time
from pathlib import Path

from guerdon import StatefulReward

GO = threading.Event()


def stand(completion: str) -> float:
    """Does what the text says, for as long as it is let."""
    verb, _, rest = completion.partition(":")
    if verb == "loop":
        while True:
            pass
    if verb == "sleep":
        _rest(float(rest))
    if verb == "gil":
        hold_gil()
    if verb == "block":
        signal.pthread_sigmask(signal.SIG_SETMASK, range(1, signal.NSIG))
        hold_gil()
    if verb == "stop":
        os.kill(os.getpid(), signal.SIGSTOP)
    if verb == "own":
        own_all_signals(Path(rest))
    if verb == "files":
        return replace_files(Path(rest))
    return float(rest)


def _rest(seconds: float) -> None:
    time.sleep(seconds)


def hold_gil() -> int:
    """Computes in C, which never looks at signals."""
    return sum(range(10**13))


def own_all_signals(note: Path) -> None:
    """Takes each real-time signal; a handler that runs leaves a note."""
    for number in range(signal.SIGRTMIN, signal.SIGRTMAX + 1):
        signal.signal(number, lambda *_: note.write_text("called"))


def replace_files(folder: Path) -> float:
    """Puts files of its own in the place of the pages that it shares with the engine, then says so
    by a file `done`."""
    numbers = [int(name) for name in os.listdir("/proc/self/fd") if int(name) > 2]
    for number in numbers:
        if os.path.exists(f"/proc/self/fd/{number}") and "memfd" in os.readlink(f"/proc/self/fd/{number}"):
            mine = os.open(folder / f"{number}", os.O_RDWR | os.O_CREAT)
            os.dup2(mine, number)
    (folder / "done").touch()
    return float(hold_gil())


def whole_group(completions: list[str], **_: object) -> list[float]:
    _rest(60)
    return [0.0] * len(completions)


def again(completion: str) -> float:
    """Fails the first time, stands the second time."""
    note = Path(completion)
    if not note.exists():
        note.touch()
        raise ValueError("once more")
    _rest(60)
    return 0.0


def waits(completion: str) -> float:
    GO.wait(60)
    return float(completion)


async def judge(completion: str) -> float:
    await _ask(completion)
    return 1.0


async def _ask(completion: str) -> None:
    if completion == "blocks":
        GO.wait(60)
    else:
        await asyncio.sleep(60)


class SlowToSetUp(StatefulReward):
    def setup(self) -> None:
        _rest(60)

    def score(self, completion: str) -> float:
        return 1.0


class SlowLoop(StatefulReward):
    async def setup(self) -> None:
        await _ask("setup")

    async def score(self, completion: str) -> float:
        return 1.0

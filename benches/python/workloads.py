"""The workloads of the benches' contenders. Workers import this module, and with it only the
standard library."""

from __future__ import annotations

import os
import re
import signal
import time


def trivial(completion: str) -> float:
    return 1.0


def spin(seconds: float) -> float:
    """Keeps a core busy to an end by the clock."""
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        pass
    return 1.0


def wait(seconds: float) -> float:
    time.sleep(seconds)
    return 1.0


def backtrack(completion: str) -> float:
    """Holds the GIL of its process for minutes."""
    re.match(r"(a+)+$", completion)
    return 1.0


def obey(completion: str) -> float:
    """``hang`` never returns; ``die <path>`` notes the time and ends its process, the first
    time."""
    if completion == "hang":
        while True:
            pass
    if completion.startswith("die "):
        try:
            with open(completion[4:], "x") as file:
                file.write(str(time.monotonic()))
        except FileExistsError:
            return 1.0
        os.kill(os.getpid(), signal.SIGKILL)
    return 1.0

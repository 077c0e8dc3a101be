"""A function that hangs in a way that only SIGKILL ends, and stamps into a file when it starts."""

from __future__ import annotations

import mmap
import os
import signal
import struct
import time

WORD = struct.Struct("<qd")  # pid, start


def stamp(path: str, place: int) -> None:
    with open(path, "r+b") as file, mmap.mmap(file.fileno(), 2 * WORD.size) as page:
        page[place * WORD.size : (place + 1) * WORD.size] = WORD.pack(os.getpid(), time.monotonic())


def hanging(page: str, place: int) -> float:
    if place == 0:
        signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGURG])
    stamp(page, place)
    while place == 0:
        pass
    return 1.0

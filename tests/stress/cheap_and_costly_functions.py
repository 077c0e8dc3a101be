"""Reward functions of very different cost, which note the order in which they are called. Workers
import this module."""

from __future__ import annotations

import os
import struct
import time

# Number of the function, sample.
NOTE = struct.Struct("<II")
CHEAP, DEAR = 0, 1
DEAR_S = 0.001


def cheap(completion: str, number: int, notes: str) -> float:
    note(notes, CHEAP, number)
    return 1.0


def dear(completion: str, number: int, notes: str) -> float:
    note(notes, DEAR, number)
    time.sleep(DEAR_S)
    return 1.0


def note(path: str, function: int, number: int) -> None:
    """Appends a record; whole, whoever else does."""
    descriptor = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
    try:
        os.write(descriptor, NOTE.pack(function, number))
    finally:
        os.close(descriptor)


def length(completion: str) -> float:
    return float(len(completion))


def doze(completion: str) -> float:
    time.sleep(float(completion))
    return 1.0


def instant(completion: str) -> float:
    return 1.0


def sleep_if_told(completion: str) -> float:
    """Cheap but for samples that give a number of seconds."""
    if completion:
        time.sleep(float(completion))
    return 1.0


def spin_if_told(completion: str) -> float:
    """The same with seconds of work."""
    end = time.process_time() + float(completion or 0)
    while completion and time.process_time() < end:
        pass
    return 1.0

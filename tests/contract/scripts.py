"""Scripted batches: what each call of a reward function shall do, what must come of it, and what
really ran.

A dataset column holds one `Cell` per sample for each function: what the call does on its first,
second, … attempt, and what the sample's cell is in the end. `play` and its likes do it inside the
reward functions, on every lane; `foretell` says what the engine must make of it. Every attempt
leaves a record in the batch's log, written before anything else happens, so that what ran is known
whatever became of its process.

Workers import this module: it needs nothing but the standard library.
"""

from __future__ import annotations

import asyncio
import math
import os
import signal
import struct
import time
from collections import Counter
from collections.abc import Sequence
from typing import Any, NamedTuple

RECORD = struct.Struct("<II")

OK, ABSTAINED, TIMEOUT, ERROR, CRASHED, CANCELLED = range(6)


class Cell(NamedTuple):
    """The script of one sample for one function; of a group or batch call the first sample's
    `moves` count.

    Attributes:
        log: File that attempts are recorded in.
        function: Number of the function.
        sample: Number of the sample.
        moves: What the first, second, … attempt does; behind the last one attempts succeed.
        gives: What the sample gets from an attempt that succeeds: ``"number"``, ``"none"`` or
            ``"text"``, which is no reward.
        delay: Seconds before an attempt does anything.
    """

    log: str
    function: int
    sample: int
    moves: tuple[str, ...] = ()
    gives: str = "number"
    delay: float = 0.0


class End(NamedTuple):
    """What must come of a cell."""

    status: int
    value: float
    attempts: int


# What a failing attempt does, and what its failure is.
FAILS = {"raise": ERROR, "exit": ERROR, "interrupt": ERROR, "die": CRASHED, "kill": CRASHED, "hang": TIMEOUT}


def value_of(text: str, sample: int) -> float:
    """A number with all bits in use, the same in every process."""
    return math.sin(len(text) * 12.9898 + sample * 78.233) * 43758.5453


def play(text: str, cell: Cell) -> object:
    """One attempt of a per-sample call."""
    act(cell, time.sleep)
    return _given(text, cell)


def play_all(texts: Sequence[str], cells: Sequence[Cell]) -> list[object]:
    """One attempt of a group or batch call."""
    act(cells[0], time.sleep)
    return [_given(text, cell) for text, cell in zip(texts, cells)]  # noqa: B905 - as reward functions are written


async def aplay(text: str, cell: Cell) -> object:
    await aact(cell)
    return _given(text, cell)


async def aplay_all(texts: Sequence[str], cells: Sequence[Cell]) -> list[object]:
    await aact(cells[0])
    return [_given(text, cell) for text, cell in zip(texts, cells)]  # noqa: B905


def foretell(text: str, cell: Cell, first: Cell, retries: int) -> End:
    """What a serial loop with the engine's policy makes of a cell whose call has the script of
    `first`."""
    attempt, suspect = 1, False
    while True:
        move = first.moves[attempt - 1] if attempt <= len(first.moves) else None
        if move is None:
            status = {"number": OK, "none": ABSTAINED, "text": ERROR}[cell.gives]
            return End(status, value_of(text, cell.sample) if status == OK else math.nan, attempt)
        status = FAILS[move]
        if status == CRASHED and not suspect:
            suspect = True  # once more, alone, beyond `retries`
        elif attempt - suspect > retries:
            return End(status, math.nan, attempt)
        attempt += 1


def ran(log: str) -> Counter[tuple[int, int]]:
    """How often each (function, first sample of the call) was started."""
    with open(log, "rb") as file:
        return Counter(RECORD.iter_unpack(file.read()))


def _given(text: str, cell: Cell) -> object:
    return {"number": value_of(text, cell.sample), "none": None, "text": "a text"}[cell.gives]


def act(cell: Cell, sleep: Any) -> None:
    move = _begin(cell)
    if cell.delay:
        sleep(cell.delay)
    if move == "hang":
        _hang()
    elif move is not None:
        _fail(move)


async def aact(cell: Cell) -> None:
    move = _begin(cell)
    if cell.delay:
        await asyncio.sleep(cell.delay)
    if move == "hang":
        await asyncio.sleep(3600)
    elif move is not None:
        _fail(move)


def _begin(cell: Cell) -> str | None:
    """Records the attempt; what it shall do."""
    descriptor = os.open(cell.log, os.O_RDWR | os.O_APPEND | os.O_CREAT, 0o600)
    try:
        os.write(descriptor, RECORD.pack(cell.function, cell.sample))
        if not cell.moves:
            return None
        attempts = Counter(RECORD.iter_unpack(os.pread(descriptor, 1 << 24, 0)))[cell.function, cell.sample]
    finally:
        os.close(descriptor)
    return cell.moves[attempts - 1] if attempts <= len(cell.moves) else None


def _fail(move: str) -> None:
    if move == "raise":
        raise ValueError("as planned")
    if move == "exit":
        raise SystemExit(3)
    if move == "interrupt":
        raise KeyboardInterrupt
    if move == "die":
        os._exit(7)
    os.kill(os.getpid(), signal.SIGKILL)


def _hang() -> None:
    # A thread can't be ended, so it must come back one day; on the process lane this ends at the
    # timeout.
    until = time.monotonic() + 5.0
    while time.monotonic() < until:
        pass

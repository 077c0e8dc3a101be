"""Reward functions that wait, spin, fail or end their process as their columns tell them.

Workers import this module: it needs nothing but the standard library.
"""

from __future__ import annotations

import asyncio
import ctypes
import os
import signal
import time
from typing import Any


class SlowToLoad:
    """Takes its time to be unpickled, each."""

    def __init__(self, seconds: float) -> None:
        self.seconds = seconds

    def __setstate__(self, state: dict[str, Any]) -> None:
        time.sleep(state["seconds"])
        self.__dict__.update(state)


class NotesItsLoads:
    """Notes each time that it is unpickled."""

    def __init__(self, path: str) -> None:
        self.path = path

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        note(self.path)


class UnfitToLoad:
    """Can be pickled, not unpickled: there it raises, hangs or ends the process."""

    def __init__(self, how: str = "error") -> None:
        self.how = how

    def __setstate__(self, state: dict[str, Any]) -> None:
        end(state["how"])


def takes(value: object, path: str) -> float:
    note(path)
    return 1.0


def sleep(seconds: float) -> float:
    time.sleep(seconds)
    return seconds


async def wait(seconds: float) -> float:
    await asyncio.sleep(seconds)
    return seconds


def sleep_all(seconds: list[float]) -> list[float]:
    time.sleep(seconds[0])
    return list(seconds)


async def wait_all(seconds: list[float]) -> list[float]:
    await asyncio.sleep(seconds[0])
    return list(seconds)


def stubborn(seconds: float, note: str) -> float:
    """Swallows whatever is raised into it, and returns a number all the same."""
    with open(note, "w") as file:
        file.write(str(os.getpid()))
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        try:
            time.sleep(0.01)
        except BaseException:  # the point of it
            continue
    return 1.0


async def stubborn_wait(seconds: float) -> float:
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        try:
            await asyncio.sleep(0.01)
        except BaseException:  # the point of it
            continue
    return 1.0


class Silent(Exception):
    """Has no text to give."""

    def __str__(self) -> str:
        raise RuntimeError("no text")


class Mute(Exception):
    """Raises for every attribute."""

    def __getattribute__(self, name: str) -> Any:
        raise ValueError(name)


class Text(str):
    """Can't be asked whether it is empty."""

    def __bool__(self) -> bool:
        raise ValueError("no")


class Odd(Exception):
    """Gives no plain text."""

    def __str__(self) -> str:
        return Text("odd")


class Base(BaseException):
    """Not an Exception."""


def _raise(error: BaseException) -> None:
    raise error


def _recurse() -> None:
    _recurse()


# What may go wrong inside a function, and the start of the reason that is given.
ERRORS: dict[str, tuple[Any, str]] = {
    "ValueError": (lambda: _raise(ValueError("wrong")), "ValueError: wrong"),
    "SystemExit": (lambda: _raise(SystemExit(2)), "SystemExit: 2"),
    "KeyboardInterrupt": (lambda: _raise(KeyboardInterrupt()), "KeyboardInterrupt"),
    "GeneratorExit": (lambda: _raise(GeneratorExit()), "GeneratorExit"),
    "StopIteration": (lambda: next(iter(())), "StopIteration"),
    "CancelledError": (lambda: _raise(asyncio.CancelledError()), "CancelledError"),
    "Base": (lambda: _raise(Base("bare")), "Base: bare"),
    "Silent": (lambda: _raise(Silent()), "Silent"),
    "Mute": (lambda: _raise(Mute()), "Mute"),
    "Odd": (lambda: _raise(Odd()), "Odd"),
    "RecursionError": (_recurse, "RecursionError"),
    "MemoryError": (lambda: _raise(MemoryError()), "MemoryError"),
    "AssertionError": (lambda: _raise(AssertionError()), "AssertionError"),
    "chained": (lambda: _chained(), "LookupError: outer"),
}


def _chained() -> None:
    try:
        raise ValueError("inner")
    except ValueError as error:
        raise LookupError("outer") from error


def fail(how: str) -> float:
    if how:
        ERRORS[how][0]()
    return 1.0


async def afail(how: str) -> float:
    await asyncio.sleep(0)
    if how == "StopIteration":  # a coroutine can't raise it: Python makes a RuntimeError of it
        raise StopAsyncIteration
    return fail(how)


def end(how: str) -> float:
    """Ends its process, or raises, or hangs."""
    if how == "exit":
        os._exit(3)
    elif how == "SIGSEGV":
        ctypes.string_at(0)
    elif how in ("SIGKILL", "SIGABRT"):
        os.kill(os.getpid(), getattr(signal, how))
    elif how == "error":
        raise ValueError("wrong")
    elif how == "hang":
        time.sleep(600)
    elif how == "invalid":
        return "no number"  # type: ignore[return-value]
    elif how == "none":
        return None  # type: ignore[return-value]
    return 1.0


def end_all(how: list[str]) -> list[float]:
    return [end(one) for one in how]


def note(path: str) -> int:
    """Adds a line of the time to a file; how many there were."""
    with open(path, "a+") as file:
        file.seek(0)
        lines = len(file.readlines())
        file.write(f"{time.monotonic()}\n")
    return lines


class Later(Exception):
    """What a rate-limited service answers."""

    retry_after = 0.6


def fails_at_first(path: str, times: int, how: str) -> object:
    """Fails as `how` says on its first `times` attempts."""
    if note(path) >= times:
        return 1.0
    if how == "later":
        raise Later("slow down")
    return end(how)


async def afails_at_first(path: str, times: int, how: str) -> object:
    if note(path) >= times:
        return 1.0
    if how == "hang":
        await asyncio.sleep(600)
    if how == "later":
        raise Later("slow down")
    return end(how)

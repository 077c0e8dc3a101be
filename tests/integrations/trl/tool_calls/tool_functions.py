"""Tools and an environment for the tests: what they do is little, and workers can import them."""

from __future__ import annotations

import asyncio
import os
import sqlite3
import threading
import time
from collections.abc import Iterator
from typing import Any


def nap(seconds: float, label: str = "") -> str:
    """Waits.

    Args:
        seconds: How long.
        label: What comes back.
    """
    time.sleep(seconds)
    return f"{label} {os.getpid()}"


async def doze(seconds: float, label: str = "") -> str:
    """Waits.

    Args:
        seconds: How long.
        label: What comes back.
    """
    await asyncio.sleep(seconds)
    return label


def forgetful(text: str) -> Any:
    """Forgets to await.

    Args:
        text: Anything.
    """
    return doze(0.0, text)


def ask(text: str) -> Iterator[str]:
    """Asks piece by piece.

    Args:
        text: Anything.
    """
    yield text


def spin() -> None:
    """Never ends."""
    while True:
        pass


def fail(text: str) -> None:
    """Fails.

    Args:
        text: What it says.
    """
    raise ValueError(text)


class OddError(Exception):
    """Can't be made from its own arguments."""

    def __init__(self, code: int, text: str) -> None:
        super().__init__(f"{code}: {text}")


def fail_oddly() -> None:
    """Fails."""
    raise OddError(7, "odd")


def die() -> None:
    """Ends its process."""
    os._exit(3)


def lock() -> Any:
    """Gives what can't be sent."""
    return threading.Lock()


def pieces() -> list[dict[str, Any]]:
    """Gives a list."""
    return [{"type": "text", "text": "seen"}]


class Pad:
    """Keeps what is written to it."""

    def __init__(self) -> None:
        self.lines: list[str] = []

    def write(self, line: str) -> int:
        """Writes a line.

        Args:
            line: What to write.
        """
        self.lines.append(line)
        return len(self.lines)

    async def read(self) -> str:
        """Reads all."""
        return "|".join(self.lines)

    def __call__(self, line: str) -> int:
        """Writes a line.

        Args:
            line: What to write.
        """
        return self.write(line)


class Shop:
    """Its connection belongs to the thread that made it."""

    def reset(self, **row: Any) -> None:
        self.database = sqlite3.connect(":memory:")
        self.database.execute("create table sold (what text)")

    def sell(self, what: str) -> int:
        """Sells.

        Args:
            what: What to sell.
        """
        self.database.execute("insert into sold values (?)", (what,))
        return int(self.database.execute("select count(*) from sold").fetchone()[0])

    def get_reward(self) -> float:
        return float(self.sell("nothing"))


def nothing(completions: list[Any], **columns: Any) -> list[float]:
    """A reward function without an opinion of its own."""
    return [0.0] * len(completions)

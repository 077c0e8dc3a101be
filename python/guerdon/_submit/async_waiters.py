"""Coroutines that wait for news of one batch, each on its own loop.

- S-1  The loop is never blocked: it watches the batch's descriptor.
- S-2  News that somebody else took wakes all who wait for it.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import asyncio


class Sleepers:
    """Who waits; the list is read and written under `lock`, that of the news."""

    def __init__(self, lock: threading.RLock) -> None:
        self._lock = lock
        self._sleepers: list[_Sleeper] = []

    def wake(self) -> None:
        """There is news; the caller holds the lock."""
        for sleeper in self._sleepers:
            sleeper.wake()

    async def news_from(self, descriptor: int, deadline: float | None, known: Callable[[], bool]) -> bool:
        """Waits until the batch's descriptor is readable or somebody else took its news; False when there is no time
        left (S-1, S-2)."""
        import asyncio

        left = None if deadline is None else deadline - time.monotonic()
        if left is not None and left <= 0:
            return False
        loop = asyncio.get_running_loop()
        sleeper = _Sleeper(loop)
        with self._lock:
            self._sleepers.append(sleeper)
        own = os.dup(descriptor)  # a loop keeps one reader a descriptor, and two coroutines may wait on it
        loop.add_reader(own, sleeper.set)
        timer = None if left is None else loop.call_later(left, sleeper.set)
        try:
            if not known():
                await sleeper.future
        finally:
            if timer is not None:
                timer.cancel()
            loop.remove_reader(own)
            os.close(own)
            with self._lock:
                self._sleepers.remove(sleeper)
        return True


class _Sleeper:
    """A coroutine that waits for news."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self.future: asyncio.Future[None] = loop.create_future()

    def set(self) -> None:
        """Wakes it, on its own loop."""
        if not self.future.done():
            self.future.set_result(None)

    def wake(self) -> None:
        """Wakes it, from any thread."""
        try:
            self._loop.call_soon_threadsafe(self.set)
        except RuntimeError:  # its loop was closed under it
            return

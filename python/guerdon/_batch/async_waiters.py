"""Coroutines that wait for news of one batch, each on its own event loop.

- The loop is never blocked: it watches the batch's descriptor.
- All waiting coroutines are woken, even if another thread or coroutine takes the news.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import asyncio


class AsyncWaiters:
    """The waiting coroutines; the list is read and written under `lock`, the lock of the news."""

    def __init__(self, lock: threading.RLock) -> None:
        self._lock = lock
        self._waiters: list[_Waiter] = []

    def wake(self) -> None:
        """Wakes all waiting coroutines; the caller holds the lock."""
        for waiter in self._waiters:
            waiter.wake()

    async def wait(self, descriptor: int, deadline: float | None, known: Callable[[], bool]) -> bool:
        """Waits until `descriptor` is readable or another caller took its news; False when time is
        up."""
        import asyncio

        left = None if deadline is None else deadline - time.monotonic()
        if left is not None and left <= 0:
            return False
        loop = asyncio.get_running_loop()
        waiter = _Waiter(loop)
        # a loop keeps one reader a descriptor, and two coroutines may wait on it
        own = os.dup(descriptor)
        with self._lock:
            self._waiters.append(waiter)
        loop.add_reader(own, waiter.set)
        timer = None if left is None else loop.call_later(left, waiter.set)
        try:
            if not known():
                await waiter.future
        finally:
            if timer is not None:
                timer.cancel()
            loop.remove_reader(own)
            os.close(own)
            with self._lock:
                self._waiters.remove(waiter)
        return True


class _Waiter:
    """One coroutine that waits."""

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
        except RuntimeError:  # its loop was closed meanwhile
            return

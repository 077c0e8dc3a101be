"""An event loop on a thread of its own, for coroutines that other threads wait for."""

from __future__ import annotations

import asyncio
import os
import threading
import weakref
from collections.abc import Coroutine
from concurrent.futures import Future
from typing import Any, Final, TypeVar

from guerdon._lanes.gil import need_gil
from guerdon.errors import GuerdonError

T = TypeVar("T")

# Seconds that cancelled coroutines get to end.
_END_S: Final = 5.0


class EventLoopThread:
    """Started by its first coroutine; ended by `close`, or with this object, which cancels the
    running ones.

    Args:
        name: Of the thread.
        patience: Seconds that the end waits for the thread.
    """

    def __init__(self, name: str = "guerdon event loop", patience: float = 1.0) -> None:
        self._name = name
        self._patience = patience
        self._lock = threading.Lock()
        # Both written under the lock. A forked child has the loop, but not the thread.
        self._loop: asyncio.AbstractEventLoop | None = None
        self._pid = 0
        self._end: weakref.finalize[..., Any] | None = None

    def start(self, coroutine: Coroutine[Any, Any, T]) -> Future[T]:
        """Runs `coroutine`; its result comes later."""
        try:
            loop = self._running()
        except BaseException:
            coroutine.close()  # nobody will await it
            raise
        return asyncio.run_coroutine_threadsafe(coroutine, loop)

    def run(self, coroutine: Coroutine[Any, Any, T]) -> T:
        """The result of `coroutine`, for callers on other threads; an interrupt cancels it."""
        future = self.start(coroutine)
        try:
            return future.result()
        except BaseException:
            future.cancel()
            raise

    def close(self) -> None:
        """Cancels what runs. The next coroutine starts another thread."""
        with self._lock:
            self._loop = None
        if self._end is not None:
            self._end()

    def _running(self) -> asyncio.AbstractEventLoop:
        with self._lock:
            if self._loop is None or self._pid != os.getpid():
                need_gil(beyond_threads=True)
                loop = asyncio.new_event_loop()
                thread = threading.Thread(target=_turn, args=(loop,), name=self._name, daemon=True)
                try:
                    thread.start()
                except RuntimeError as error:
                    loop.close()
                    raise GuerdonError(
                        f"the event loop {self._name!r} has no thread: {error}. Raise the limit on processes and threads "
                        "(`ulimit -u`, or the container's), or start fewer of them."
                    ) from error
                self._end = weakref.finalize(self, _stop, loop, thread, self._patience)
                self._loop, self._pid = loop, os.getpid()
            return self._loop


def _turn(loop: asyncio.AbstractEventLoop) -> None:
    """Runs a loop until it is stopped; refers to nothing that would keep its owner alive."""
    asyncio.set_event_loop(loop)
    try:
        loop.run_forever()
    finally:
        left = asyncio.all_tasks(loop)
        for task in left:
            task.cancel()
        if left:
            loop.run_until_complete(asyncio.wait(left, timeout=_END_S))
        loop.run_until_complete(loop.shutdown_asyncgens())
        loop.close()


def _stop(loop: asyncio.AbstractEventLoop, thread: threading.Thread, patience: float) -> None:
    try:
        loop.call_soon_threadsafe(loop.stop)
    except RuntimeError:  # closed before
        return
    if thread is not threading.current_thread():
        thread.join(patience)

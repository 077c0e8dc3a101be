"""`at_most`: ends what the trusted side computes from a program's values, where that does not end.

- An exception is raised in the thread that computes, between two of its bytecodes, and again each
  second: tests may keep it. One call into C is not interrupted; what a worker may hold bounds it.
- Nothing is raised any more once `at_most` has returned.
"""

from __future__ import annotations

import ctypes
import mmap
import threading
import time
from collections.abc import Callable
from typing import Final, TypeVar

from guerdon.errors import DataError

__all__ = ["LateError", "at_most"]

_AGAIN_S: Final = 1.0
_STACK: Final = 16 << 20

T = TypeVar("T")


class LateError(BaseException):
    """It took too long. No ``except Exception`` keeps it."""


def at_most(deadline: float, compute: Callable[[], T]) -> T:
    """What `compute` returns.

    Args:
        deadline: Of `time.monotonic`.

    Raises:
        LateError: It had not returned by then.
        DataError: It can't be watched.
        MemoryError: It can't, as there is no memory left.
    """
    watchdog = _Watchdog(deadline)
    try:
        watchdog.start()
        return compute()
    finally:
        interrupted: BaseException | None = None
        while True:
            try:
                watchdog.stop()
                break
            except LateError:  # raised just now: it is stopped again
                pass
            except BaseException as error:  # Ctrl-C: no watchdog may be left behind
                interrupted = error
        if interrupted is not None:
            raise interrupted


class _Watchdog:
    def __init__(self, deadline: float) -> None:
        self._deadline = deadline
        self._watched = threading.get_ident()
        # Held while the exception is raised, so that none comes after `stop`.
        self._lock = threading.Lock()
        self._over = threading.Event()

    def start(self) -> None:
        try:
            threading.Thread(target=self._run, name="guerdon-watchdog", daemon=True).start()
        except RuntimeError as error:
            try:
                mmap.mmap(-1, _STACK).close()
            except OSError:  # under the limit of a worker: tests before these hold it
                raise MemoryError("no memory is left for the tests") from error
            raise DataError(f"no thread could be started, which ends tests that hang: {error}") from error

    def stop(self) -> None:
        with self._lock:
            self._over.set()
        # What was raised just before comes here, at the next jump back. It is not taken back: then
        # CPython, to 3.12 at least, looks for it for ever, which is slow and hangs under profilers.
        for _ in range(2):
            pass

    def _run(self) -> None:
        left = max(0.0, self._deadline - time.monotonic())
        while not self._over.wait(left):
            with self._lock:
                if not self._over.is_set():
                    _raise_late_error(self._watched)
            left = _AGAIN_S


def _raise_late_error(thread: int) -> None:
    ctypes.pythonapi.PyThreadState_SetAsyncExc(ctypes.c_ulong(thread), ctypes.py_object(LateError))

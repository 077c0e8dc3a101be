"""The threads of the lanes, and a test whether this code runs on one of them."""

from __future__ import annotations

import threading
from collections.abc import Callable
from contextlib import suppress
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from guerdon._native import Lanes

__all__ = ["LaneThread", "is_lane_thread"]


class LaneThread(threading.Thread):
    """A thread that runs reward functions for an engine.

    It counts as started even if an exception from outside ends it before it runs. Otherwise `start`
    would wait for ever, and the interpreter would keep the thread.

    Args:
        ended: Called when it has ended, on itself.
        tell: Takes warnings that another process has to show.

    Attributes:
        lanes: The engine's, those of its `ThreadSupervisor`.
    """

    def __init__(
        self,
        lanes: Lanes,
        target: Callable[[], None],
        name: str,
        ended: Callable[[], None] | None = None,
        tell: Callable[[str], None] | None = None,
    ) -> None:
        super().__init__(target=target, name=name, daemon=True)
        self._started._cond = threading.Condition(threading.RLock())  # type: ignore[attr-defined]
        self.lanes = lanes
        self.tell = tell
        self._ended = ended

    def _bootstrap(self) -> None:
        try:
            with suppress(BaseException):  # what ended it before it ran: nobody's to report
                super()._bootstrap()  # type: ignore[misc]
        finally:
            self._end()

    def _end(self) -> None:
        for _ in range(100):
            try:
                if self._ended is not None:
                    self._ended()
                getattr(threading, "_limbo", {}).pop(self, None)
                self._started.set()  # type: ignore[attr-defined]
                # From 3.14, CPython keeps a lock held if an exception from outside comes between
                # its acquisition and the body of its `with`. No thread could start any more.
                for lock in (self._started._cond, getattr(threading, "_active_limbo_lock", None)):  # type: ignore[attr-defined]
                    while lock is not None and lock._is_owned():
                        lock.release()
            except BaseException:  # one more from outside, or no memory
                continue
            return


def is_lane_thread(lanes: Lanes) -> bool:
    """Returns whether this is a thread of these lanes, which can't wait for its own end."""
    current = threading.current_thread()
    return isinstance(current, LaneThread) and current.lanes is lanes

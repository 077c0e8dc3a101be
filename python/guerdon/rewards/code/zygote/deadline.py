"""Deadline of a program: by processor time, and by the clock on the wall.

A program has the same processor time, whether or not others need the processor too.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Final

__all__ = ["Deadline", "wall_seconds"]

# Between two requests for the time that it used.
_LEAST_WAIT_S: Final = 0.005


def wall_seconds(seconds: float) -> float:
    """Returns the longest time by the clock on the wall for this time on a processor."""
    return 3 * seconds + 1


class Deadline:
    """The time at which a program is ended.

    Attributes:
        seconds: Of a processor that it may use.
        end: When it is over by the clock on the wall; by default see `wall_seconds`.
        at: When to ask whether that is over, by `time.monotonic`.
    """

    def __init__(self, seconds: float, end: float | None = None) -> None:
        self._began = time.monotonic()
        self.seconds = seconds
        self.end = self._began + wall_seconds(seconds) if end is None else end
        self.at = min(self._began + seconds, self.end)

    def is_over(self, used: Callable[[], float]) -> bool:
        """Says whether its time is up, asked at `at`, which is moved where it is not.

        Args:
            used: Seconds of a processor that it used since this deadline was made.
        """
        now = time.monotonic()
        left = self.seconds - used() if now < self.end else 0.0
        self.at = min(now + max(left, _LEAST_WAIT_S), self.end)
        return left <= 0.0

    def passed(self) -> float:
        """Seconds by the clock on the wall."""
        return time.monotonic() - self._began

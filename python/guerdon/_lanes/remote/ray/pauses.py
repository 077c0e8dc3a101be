"""Pauses of nodes whose agents could not be begun: longer each time."""

from __future__ import annotations

import threading
import time
from collections.abc import Container
from typing import Final

__all__ = ["Pauses"]

_FIRST_S: Final = 2.0
_LONGEST_S: Final = 60.0


class Pauses:
    """Pauses by Ray's ids of the nodes; threads may share it."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        # Failures in a row, and when the pause after the last one is over.
        self._failed: dict[str, tuple[int, float]] = {}

    def begin(self, key: str) -> int:
        """It has failed; how often in a row."""
        with self._lock:
            failures = self._failed.get(key, (0, 0.0))[0] + 1
            pause = min(_FIRST_S * 2.0 ** min(failures - 1, 10), _LONGEST_S)
            self._failed[key] = failures, time.monotonic() + pause
            return failures

    def over(self, key: str) -> bool:
        """Returns whether it may be tried again."""
        with self._lock:
            return time.monotonic() >= self._failed.get(key, (0, 0.0))[1]

    def end(self, key: str) -> None:
        """It works."""
        with self._lock:
            self._failed.pop(key, None)

    def keep(self, keys: Container[str]) -> None:
        """Forgets those that are gone."""
        with self._lock:
            self._failed = {key: found for key, found in self._failed.items() if key in keys}

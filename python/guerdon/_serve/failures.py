"""Logs requests that the server itself failed on: one a second, the others are counted."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from typing import Final

_LOGGER: Final = logging.getLogger("guerdon.serve")
_BETWEEN_S: Final = 1.0


class RequestFailureLog:
    """The failures of one server; all of it on one event loop."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._next = clock()
        self._left_out = 0

    def report(self, path: str, error: Exception) -> None:
        """Logs an error with its traceback; `path` holds no token."""
        now = self._clock()
        if now < self._next:
            self._left_out += 1
            return
        more = f" ({self._left_out} failures before it are not shown)" if self._left_out else ""
        self._next, self._left_out = now + _BETWEEN_S, 0
        _LOGGER.error("guerdon: a request to %s failed%s", path, more, exc_info=error)

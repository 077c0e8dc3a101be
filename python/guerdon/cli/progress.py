"""Progress of a command: one line on stderr, redrawn at most ten times a second.

A line is never as wide as the terminal: one that wraps could not be drawn over.
"""

from __future__ import annotations

import os
import time
from typing import Final, TextIO

from guerdon._system.safe_text import printable

__all__ = ["Progress", "draw"]

_INTERVAL_S: Final = 0.1


class Progress:
    """Counts samples.

    Args:
        stream: Where to draw; None draws nothing.
        total: How many samples there are.
    """

    def __init__(self, stream: TextIO | None, total: int = 0) -> None:
        self._stream = stream
        self._total = total
        self._done = 0
        self._start = time.monotonic()
        self._drawn = 0.0

    @property
    def shown(self) -> bool:
        return self._stream is not None

    def add(self, samples: int) -> None:
        """Add finished samples."""
        self._done += samples
        now = time.monotonic()
        if self._stream is not None and (now - self._drawn >= _INTERVAL_S or self._done == self._total):
            self._drawn = now
            rate = self._done / max(now - self._start, 1e-9)
            left = f", {(self._total - self._done) / rate:,.0f} s left" if rate else ""
            draw(self._stream, f"{self._done}/{self._total} samples, {rate:,.0f}/s{left}")

    def set(self, done: int, total: int) -> None:
        """Show that `done` samples of `total` are finished."""
        self._total = total
        self.add(done - self._done)

    def clear(self) -> None:
        """Remove the line."""
        if self._stream is not None and self._drawn:
            draw(self._stream, "")


def draw(stream: TextIO, text: str) -> None:
    """Draws over the last line; of a text too long for the terminal the end is shown."""
    try:
        columns = os.get_terminal_size(stream.fileno()).columns or 80
    except (OSError, ValueError):
        columns = 80
    # A letter that is not ASCII may take two columns.
    room = columns - 1 if text.isascii() else (columns - 1) // 2
    stream.write(f"\r{printable(text)[-room:]}\x1b[K")
    stream.flush()

"""The progress bar: one line on stderr, redrawn at most ten times a second.

A line is never as wide as the terminal: one that wraps could not be drawn over.
"""

from __future__ import annotations

import os
import shutil
import time
import unicodedata
from typing import TextIO

__all__ = ["ProgressBar", "bar", "fitting"]

_BLOCKS = " ▏▎▍▌▋▊▉█"
_WIDTH = 28
_INTERVAL_S = 0.1


class ProgressBar:
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
        self._plain = stream is not None and not (stream.encoding or "").lower().startswith("utf")

    @property
    def shown(self) -> bool:
        return self._stream is not None

    def add(self, samples: int) -> None:
        """Add finished samples."""
        self._done += samples
        now = time.monotonic()
        if self._stream is not None and (now - self._drawn >= _INTERVAL_S or self._done == self._total):
            self._drawn = now
            self._stream.write("\r" + fitting(self._line(now - self._start), self._stream) + "\x1b[K")
            self._stream.flush()

    def set(self, done: int, total: int) -> None:
        """Show that `done` samples of `total` are finished."""
        self._total = total
        self.add(done - self._done)

    def clear(self) -> None:
        """Remove the line."""
        if self._stream is not None and self._drawn:
            self._stream.write("\r\x1b[K")
            self._stream.flush()

    def _line(self, elapsed: float) -> str:
        share = self._done / self._total
        rate = self._done / elapsed if elapsed > 0 else 0.0
        left = _clock((self._total - self._done) / rate) if rate else "--:--"
        return f"{bar(share, plain=self._plain)} {self._done}/{self._total} samples  {rate:,.0f}/s  {left} left"


def fitting(line: str, stream: TextIO) -> str:
    """Returns the part of the line that fits into the terminal of `stream`: its end, where the
    figures are."""
    try:
        columns = os.get_terminal_size(stream.fileno()).columns
    except (OSError, ValueError):
        columns = 0
    room = max(1, (columns or shutil.get_terminal_size((80, 24)).columns) - 1)
    line = line[-room:]
    while _cells(line) > room:
        line = line[1:]
    return line


def _cells(text: str) -> int:
    """Columns of the terminal that the text takes."""
    return sum(2 if unicodedata.east_asian_width(one) in "WF" else 1 for one in text)


def bar(share: float, *, plain: bool) -> str:
    """A bar that is filled to `share`; `plain` in ASCII."""
    if plain:
        full = int(share * _WIDTH)
        return "[" + "#" * full + "." * (_WIDTH - full) + "]"
    eighths = int(share * _WIDTH * 8)
    full, rest = divmod(eighths, 8)
    return ("█" * full + (_BLOCKS[rest] if full < _WIDTH else "")).ljust(_WIDTH) + "▏"


def _clock(seconds: float) -> str:
    minutes, rest = divmod(int(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{rest:02}" if hours else f"{minutes}:{rest:02}"

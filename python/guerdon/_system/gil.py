"""The global interpreter lock (GIL), which a free-threaded Python can do without."""

from __future__ import annotations

import sys

__all__ = ["has_gil"]


def has_gil() -> bool:
    """Returns whether one thread at a time runs Python."""
    return bool(getattr(sys, "_is_gil_enabled", lambda: True)())

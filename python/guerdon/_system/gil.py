"""The global interpreter lock (GIL), which a free-threaded Python can do without."""

from __future__ import annotations

import sys

__all__ = ["has_gil", "keep_gil"]

# A free-threaded Python turns the GIL on for a moment whenever an extension is loaded: it may not
# stay on.
_kept = "t" not in getattr(sys, "abiflags", "") or getattr(sys.flags, "gil", None) == 1


def keep_gil() -> None:
    """Records that the GIL stays on, if it is on."""
    global _kept
    _kept = True


def has_gil() -> bool:
    """Returns whether one thread at a time runs Python from now on, as far as Guerdon knows."""
    return _kept and bool(getattr(sys, "_is_gil_enabled", lambda: True)())

"""The page that a worker shares with its supervisor (`process/page.rs` is the other side).

- P-1  The worker writes `PROGRESS`, `DONE`, `STACK` and the halves; the supervisor writes `TAKEN`, `FIRE` and `COUNTED`. No word has two
       writers.
- P-2  A call is claimed by its start stamp first and its progress word second: who sees the claim sees the start.
- P-3  Frame ids count up by one, and a frame uses the half of its parity: a half is written again only after the
       supervisor collected what stood in it.
- P-4  No descriptor of the page is open in the worker: a function that writes to every descriptor it finds, or closes
       them all, does nothing to it.
- P-5  A forked child of the worker can't touch the page: its views are released (`release`).
"""

from __future__ import annotations

import mmap
import os

# Words, by index. A claim is ``frame << 8 | call + 1``; low bytes from `DECODING` up name a phase instead of a call, 0
# says that no call is in hand.
PROGRESS = 0
DONE = 1  # ``frame << 8 | calls done`` of the last frame that ended
TAKEN = 2  # the worker starts no call of a frame with this id or a lower one
FIRE = 3  # the claim that the timeout signal is meant for
STACK = 4  # ``signal << 32 | descriptor``: how to ask for the stack; 0: not at all
COUNTED = 5  # the frame whose worker's output was counted before its call begins

DECODING = 0xFD
LOADING = 0xFE
SETUP = 0xFF

CALLS = 64  # most calls in a frame
SIZE = 4096
_HEAD = 64
_STAMPS = 8 * (CALLS + 1)
_VALUES = 8 * CALLS
_HALF = 1152  # stamps, values, states, rounded up to whole cache lines


class FrameResults:
    """Where the calls of one frame leave what they gave.

    Attributes:
        stamps: CLOCK_MONOTONIC ns; ``stamps[i]`` is the start of call i and the end of call i - 1.
        values: The reward of call i.
        states: The status of call i.
    """

    __slots__ = ("stamps", "states", "values")

    def __init__(self, view: memoryview, at: int) -> None:
        self.stamps = view[at : at + _STAMPS].cast("Q")
        at += _STAMPS
        self.values = view[at : at + _VALUES].cast("d")
        at += _VALUES
        self.states = view[at : at + CALLS]


class SharedPage:
    """The mapped page."""

    def __init__(self, fd: int) -> None:
        # The views keep the mapping alive.
        view = memoryview(_hidden(fd))
        self.words = view[:_HEAD].cast("Q")
        self.halves = (FrameResults(view, _HEAD), FrameResults(view, _HEAD + _HALF))

    def half(self, frame: int) -> FrameResults:
        """The half of a frame (P-3)."""
        return self.halves[frame & 1]

    def release(self) -> None:
        """Makes every later access raise ValueError (P-5)."""
        self.words.release()
        for half in self.halves:
            half.stamps.release()
            half.values.release()
            half.states.release()


def _hidden(fd: int) -> mmap.mmap:
    """The mapping, with /dev/null in place of every descriptor of the page (P-4): a mapping keeps one, and until Python
    3.13 it has to."""
    kept = os.dup(fd)
    os.close(kept)  # the lowest number that is free: the one that the mapping takes
    mapping = mmap.mmap(fd, SIZE)
    null = os.open(os.devnull, os.O_RDWR)
    for each in (fd, kept):
        os.dup2(null, each, inheritable=False)
    os.close(null)
    return mapping

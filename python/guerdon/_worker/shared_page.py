"""The page that a worker shares with its supervisor; the Rust side is
``process/src/shared_page.rs``.

- The worker writes `PROGRESS`, `DONE`, `STACK` and the frame results, the supervisor `TAKEN`,
  `FIRE` and `COUNTED`: no word has two writers.
- The start stamp of a call is written before its claim: a reader that sees the claim sees the
  stamp.
- Frames use two halves in turn: the supervisor has collected one before it is written again.
- No descriptor of the page stays open in the worker, so user code can't write to it or close it.
"""

from __future__ import annotations

import mmap
import os

# Indexes of words. A claim is ``frame << 8 | call + 1``. Low bytes from `DECODING` up are a phase
# instead of a call; 0 means that no call is current.
PROGRESS = 0
DONE = 1  # ``frame << 8 | calls done`` of the last frame that ended
TAKEN = 2  # the worker starts no call of a frame with this id or a lower one
FIRE = 3  # the claim that the timeout signal is meant for
STACK = 4  # ``signal << 32 | descriptor``: how to request the stack; 0: not possible
COUNTED = 5  # the frame for which earlier output was counted

DECODING = 0xFD
LOADING = 0xFE
SETUP = 0xFF

CALLS = 64  # most calls in a frame
SIZE = 4096
_HEAD = 64
_STAMPS = 8 * (CALLS + 1)
_VALUES = 8 * CALLS
_HALF = 1152  # stamps, values, states, rounded up to cache lines


class FrameResults:
    """The results of the calls of one frame.

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
        view = memoryview(_without_descriptors(fd))
        self.words = view[:_HEAD].cast("Q")
        self._halves = (FrameResults(view, _HEAD), FrameResults(view, _HEAD + _HALF))

    def results_of(self, frame: int) -> FrameResults:
        """Where the results of a frame go."""
        return self._halves[frame & 1]

    def release(self) -> None:
        """Makes every later access raise ValueError: a forked child must not write to the page."""
        self.words.release()
        for half in self._halves:
            half.stamps.release()
            half.values.release()
            half.states.release()


def _without_descriptors(fd: int) -> mmap.mmap:
    """The mapping, with /dev/null in place of every descriptor of the page.

    A mapping keeps one open; before Python 3.13 that can't be avoided.
    """
    kept = os.dup(fd)
    os.close(kept)  # the lowest free number, which the mapping will take
    mapping = mmap.mmap(fd, SIZE)
    null = os.open(os.devnull, os.O_RDWR)
    for each in (fd, kept):
        os.dup2(null, each, inheritable=False)
    os.close(null)
    return mapping

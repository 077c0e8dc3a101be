"""The page that a worker shares with its supervisor; the Rust side is
``process/src/shared_page.rs``.

- The worker writes its page, which it seals against all others, the supervisor `TAKEN`, `FIRE` and
  `COUNTED`, in another page: no word has two writers. User code finds no descriptor of them.
- The start stamp of a call is written before its claim: a reader of the claim sees the stamp.
- Frames use two halves in turn: the supervisor has collected one before it is written again.
"""

from __future__ import annotations

import contextlib
import fcntl
import mmap
import os

# Indexes of words. A claim is ``frame << 8 | call + 1``. Low bytes from `IMPORTING` up are a phase
# instead of a call; 0 means that no call is current.
PROGRESS = 0
DONE = 1  # ``frame << 8 | calls done`` of the last frame that ended
# Of the supervisor's words.
TAKEN = 2  # the worker starts no call of a frame with this id or a lower one
FIRE = 3  # the claim that the timeout signal is meant for
COUNTED = 5  # the frame for which earlier output was counted
# Of the worker's again.
STACK = 4  # ``signal << 32 | descriptor``: how to request the stack; 0: not possible

IMPORTING = 0xFC
DECODING = 0xFD
LOADING = 0xFE
SETUP = 0xFF

REPORTED = 0x80  # in the state of a call: it sent messages about itself

CALLS = 64  # most calls in a frame
SIZE = 4096
_ADD_SEALS, _SEAL, _SEAL_FUTURE_WRITE = 1033, 0x1, 0x10  # the last since Linux 5.1
_HEAD = 64
_STAMPS = 8 * (CALLS + 1)
_VALUES = 8 * CALLS
_HALF = 1152  # stamps, values, states, rounded up to cache lines


class FrameResults:
    """The results of the calls of one frame.

    Attributes:
        stamps: CLOCK_MONOTONIC ns; ``stamps[i]`` is the start of call i and the end of call i - 1.
        values: The reward of call i.
        states: The status of call i, with `REPORTED` if messages of it were sent before.
    """

    __slots__ = ("stamps", "states", "values")

    def __init__(self, view: memoryview, at: int) -> None:
        self.stamps = view[at : at + _STAMPS].cast("Q")
        at += _STAMPS
        self.values = view[at : at + _VALUES].cast("d")
        at += _VALUES
        self.states = view[at : at + CALLS]


class SharedPage:
    """The mapped pages.

    Args:
        fd: The worker's page. In its place is /dev/null afterwards.
        commands_fd: The file that begins with the supervisor's page.
    """

    def __init__(self, fd: int, commands_fd: int) -> None:
        commands = memoryview(_mapped(commands_fd, mmap.PROT_READ))
        self.commands = commands[:_HEAD].cast("Q")
        # The views keep the mapping alive.
        view = memoryview(_mapped(fd, mmap.PROT_READ | mmap.PROT_WRITE))
        self.words = view[:_HEAD].cast("Q")
        self._halves = (FrameResults(view, _HEAD), FrameResults(view, _HEAD + _HALF))

    def results_of(self, frame: int) -> FrameResults:
        """Returns the place for the results of a frame."""
        return self._halves[frame & 1]

    def release(self) -> None:
        """Makes every later access raise ValueError: a forked child must not write to the page."""
        self.words.release()
        self.commands.release()
        for half in self._halves:
            half.stamps.release()
            half.values.release()
            half.states.release()


def _mapped(fd: int, protection: int) -> mmap.mmap:
    """A mapping, with /dev/null in place of every descriptor that it keeps.

    A mapping keeps one open; before Python 3.13 that can't be avoided. A page to write to is sealed
    and its own descriptor goes too.
    """
    kept = os.dup(fd)
    os.close(kept)  # the lowest free number, which the mapping will take
    mapping = mmap.mmap(fd, SIZE, prot=protection)
    replaced = [kept]
    if protection & mmap.PROT_WRITE:
        with contextlib.suppress(OSError):  # a system that can't
            fcntl.fcntl(fd, _ADD_SEALS, _SEAL | _SEAL_FUTURE_WRITE)
        replaced.append(fd)
    null = os.open(os.devnull, os.O_RDWR)
    for each in replaced:
        os.dup2(null, each, inheritable=False)
    os.close(null)
    return mapping

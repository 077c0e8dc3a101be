"""Number of others' tasks that the kernel counts with those of programs: found by trying.

The kernel has one count a user. If others have that user too, a limit of a program's own threads
would let none start. They can't be counted: those in other containers of the machine are not seen.
"""

from __future__ import annotations

import _thread
import mmap
import resource
from collections.abc import Callable
from typing import Final

__all__ = ["SHORTAGE", "most_others", "starts_a_thread"]

SHORTAGE: Final = (
    "programs can start no threads: this user has as many processes and threads as it may have on this machine. "
    "Raise its limit (ulimit -u; nproc in limits.conf; the container's limit of processes), or start fewer workers"
)
_MOST: Final = 1 << 22  # that Linux can have
_STEP: Final = 16
# Others come and go between two looks.
_ROOM: Final = 48
_STACK: Final = 64 << 10


def most_others(starts: Callable[[int], bool]) -> int | None:
    """Returns the number of others' tasks for which room must be left; 0 where none are in the way,
    None where no room is enough.

    Args:
        starts: Whether a thread starts at the limit, with room for so many.
    """
    if starts(0):
        return 0
    low, high = 0, _ROOM
    while not starts(high):
        low, high = high, high * 4
        if high > _MOST:
            return None
    while high - low > _STEP:
        middle = (low + high) // 2
        low, high = (low, middle) if starts(middle) else (middle, high)
    return high + _ROOM


def starts_a_thread(tasks: int) -> bool:
    """Returns whether the last of `tasks` threads would start. Runs in a fenced child, whose limit
    it lowers by the others: they need not be started. Returns True too if memory is lacking."""
    others = max(tasks - 2, 0)
    soft, hard = resource.getrlimit(resource.RLIMIT_NPROC)
    if soft != resource.RLIM_INFINITY:
        resource.setrlimit(resource.RLIMIT_NPROC, (max(soft - others, 0), hard))
    _thread.stack_size(_STACK)
    try:
        mmap.mmap(-1, 2 * _STACK).close()
    except (OSError, MemoryError):
        return True
    try:
        _thread.start_new_thread(_nothing, ())
    except RuntimeError:
        return False
    return True


def _nothing() -> None:
    """Body of the thread."""

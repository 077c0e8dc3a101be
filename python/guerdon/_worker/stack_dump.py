"""The Python stack of this process for its supervisor (``process/src/stack_request.rs``).

- `faulthandler` writes it from a signal handler in C: that works while C code holds the GIL.
- The signal is an unused real-time signal. If a function takes it later, the function keeps it, and
  no stack is requested from the next frame on.
- It is written to a memory file behind a high descriptor, which user code hardly reuses.
- It holds the main thread only, which runs the calls: another thread may end during the walk.
"""

from __future__ import annotations

import faulthandler
import signal

# Not `signal.getsignal`, which makes an enum member of the answer: this runs before every frame.
from _signal import getsignal  # type: ignore[import-not-found]

from .linux import to_high_descriptor
from .shared_page import STACK

_FIRST = signal.SIGRTMIN + 20

# 0: none is free. Written by `choose_signal`, before forks.
_signal = 0


def choose_signal() -> None:
    """Chooses an unused signal for this process and its forks."""
    global _signal
    _signal = _free_signal()


def enable(fd: int, words: memoryview) -> None:
    """Makes a signal write the stack to `fd`, which it takes over, and writes both into the
    page."""
    high = to_high_descriptor(fd)
    if _signal:
        faulthandler.register(_signal, high, all_threads=False, chain=False)
        words[STACK] = _signal << 32 | high


def disable_if_taken(words: memoryview) -> None:
    """Disables the dump once user code handles the signal."""
    number = words[STACK] >> 32
    if number and getsignal(number) != signal.SIG_DFL:
        words[STACK] = 0


def _free_signal() -> int:
    """Returns a real-time signal with its default action, 0 without one.

    Read from /proc: C libraries take signals without Python knowing.
    """
    taken = 0
    with open("/proc/self/status", "rb") as file:
        for line in file:
            if line.startswith((b"SigBlk:", b"SigIgn:", b"SigCgt:")):
                taken |= int(line.split()[1], 16)
    for number in range(_FIRST, signal.SIGRTMAX + 1):
        if not taken >> (number - 1) & 1:
            return number
    return 0

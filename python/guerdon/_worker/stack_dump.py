"""The stack of this process, for its supervisor, whatever the process is doing (`process/asking.rs` asks and reads).

- S-1  `faulthandler` writes it from a handler in C: no Python runs, so C code may hold the GIL as long as it likes.
- S-2  The signal is a real-time one that nobody has taken. A function that takes it later keeps it, and is not asked
       from its next frame on.
- S-3  It goes to a memory file of fixed size, behind a high descriptor: what a function opens after it closed all it
       found gets another number.
- S-4  Only the stack of the main thread, which runs the calls: another thread may end while its stack is walked.
"""

from __future__ import annotations

import faulthandler
import signal

from .linux import to_high_descriptor
from .shared_page import STACK

_FIRST = signal.SIGRTMIN + 20

# 0: there is none. Written by `choose_signal`, before forks.
_signal = 0


def choose_signal() -> None:
    """Looks for a signal that nobody has taken, for this process and its forks."""
    global _signal
    _signal = _free_signal()


def offer(fd: int, words: memoryview) -> None:
    """Has a signal write the stack to `fd`, which is taken over, and says in the page which and where."""
    high = to_high_descriptor(fd)
    if _signal:
        faulthandler.register(_signal, high, all_threads=False, chain=False)
        words[STACK] = _signal << 32 | high


def leave_if_taken(words: memoryview) -> None:
    """Takes the offer back once the signal is the user's (S-2)."""
    number = words[STACK] >> 32
    if number and signal.getsignal(number) is not signal.SIG_DFL:
        words[STACK] = 0


def _free_signal() -> int:
    """A real-time signal with its default action, 0 if there is none. C libraries take signals unknown to Python."""
    taken = 0
    with open("/proc/self/status", "rb") as file:
        for line in file:
            if line.startswith((b"SigBlk:", b"SigIgn:", b"SigCgt:")):
                taken |= int(line.split()[1], 16)
    for number in range(_FIRST, signal.SIGRTMAX + 1):
        if not taken >> (number - 1) & 1:
            return number
    return 0

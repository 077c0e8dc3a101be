"""Marks in this process's output that tell its reader whose the lines are (`process/output` reads them).

- M-1  A mark stands between what one function printed and what the next prints, whatever printed it, Python or C.
- M-2  It is written to the pipe to the engine and to nothing else: not to a file of the user's behind the same number. Behind a
       number this high (`system.out_of_reach`) a pipe is ours.
- M-3  A function that follows itself needs none: no system call is made for it.
- M-4  What was printed before the first function's turn has left already.
"""

from __future__ import annotations

import fcntl
import os

from .linux import to_high_descriptor
from .resource_limits import flush_output


class OutputMarkers:
    """Writes marks to the pipe behind `fd`, which is taken over."""

    def __init__(self, fd: int) -> None:
        self._fd = to_high_descriptor(fd)
        self._function = -1

    def turn_to(self, function: int) -> bool:
        """What is printed from now on is this function's; whether that needed a mark."""
        if function == self._function:
            return False
        try:
            if self._function >= 0:
                flush_output()
        except BaseException:  # a stream of the user's: no call is in hand that it could be told to
            pass
        self._function = function
        try:
            fcntl.fcntl(self._fd, fcntl.F_GETPIPE_SZ)  # M-2
            os.write(self._fd, b"\0guerdon:%d\n" % function)
        except OSError:  # no pipe; the reader is gone; or user code made the pipe non-blocking and filled it
            return False
        return True

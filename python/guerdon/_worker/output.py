"""The output of this process: flushing it, and markers that name the printing function for its
reader.

- A marker is written between the output of two functions, whether Python or C printed it. A
  function that follows itself needs none, and no system call.
- It is written only to the engine's pipe, never to a file that user code opened under the same
  number: a pipe behind a number this high (`linux.to_high_descriptor`) is ours.
- Output from before the first function's turn was sent already.
"""

from __future__ import annotations

import fcntl
import os
import sys

from . import linux
from .linux import to_high_descriptor
from .timeout_signal import CallInterrupted


def flush_output() -> None:
    """Flushes what Python and C code printed."""
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except CallInterrupted:
            raise
        except BaseException:  # closed, or replaced by user code that may raise anything
            continue
    linux.flush_c_stdout()


def is_output_closed() -> bool:
    """Returns whether user code closed what later calls print to."""
    try:
        if sys.stdout.closed or sys.stderr.closed:
            return True
        fcntl.fcntl(1, fcntl.F_GETFD)
        fcntl.fcntl(2, fcntl.F_GETFD)
    except CallInterrupted:
        raise
    except OSError:
        return True
    except BaseException:  # a stream of the user's, which may raise anything
        return False
    return False


def warn(message: str) -> None:
    """Prints to this process's output, which the engine forwards to the trainer's stderr.

    Not by `sys.stderr`, which user code may have replaced.
    """
    flush_output()
    try:
        os.write(2, message.encode(errors="backslashreplace") + b"\n")
    except OSError:  # closed by user code
        return


class OutputMarkers:
    """Writes markers to the pipe `fd`, which it takes over."""

    def __init__(self, fd: int) -> None:
        self._fd = to_high_descriptor(fd)
        self._function = -1

    def switch_to(self, function: int) -> bool:
        """Attributes output from now on to this function; True if that took a marker."""
        if function == self._function:
            return False
        try:
            if self._function >= 0:
                flush_output()
        # a stream of the user's raised; no call is running that could fail for it
        except BaseException:
            pass
        self._function = function
        try:
            fcntl.fcntl(self._fd, fcntl.F_GETPIPE_SZ)  # fails if it is not a pipe
            os.write(self._fd, b"\0guerdon:%d\n" % function)
        except OSError:  # no pipe, no reader, or user code made it non-blocking and filled it
            return False
        return True

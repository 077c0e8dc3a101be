"""One run of a program that reads standard input and writes standard output.

- Standard input is a file, as judges give it: programs ask for its size, map it, or read it again.
  What it prints goes to files, too; one that prints more than it may is killed.
- When this returns, nothing of the program is left.
"""

from __future__ import annotations

import contextlib
import os
import select
import signal
import socket
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

from guerdon.rewards.code.child.encoding import encode
from guerdon.rewards.code.child.frames import ChannelClosedError, send
from guerdon.rewards.code.zygote.deadline import Deadline
from guerdon.rewards.code.zygote.zygote_process import Ended, ProgramZygote

__all__ = ["STDIN", "ScriptRun", "run_script", "signal_name"]

STDIN: Final = "/dev/stdin"
"""A program whose text has this opens its input by name."""
# Between two looks at how much was printed; the limit on the size of a file holds at once.
_LOOK_S: Final = 0.1
_MOST_STDERR: Final = 1 << 16


@dataclass(frozen=True)
class ScriptRun:
    """Result of a run.

    Attributes:
        stdout: What it printed.
        stderr: The end of what it printed there.
        stopped: Why it was killed; "" where it ended by itself.
        ended: Its exit status.
        starved: It was killed at its time limit, though other processes had most of the processor.
    """

    stdout: bytes
    stderr: bytes
    stopped: str
    ended: Ended
    starved: bool = False

    @property
    def fault(self) -> str:
        """Why it did not end as a program should; "" where it did."""
        if self.stopped:
            return self.stopped
        status = self.ended.status
        if status < 0:
            return f"it was ended by {signal_name(-status)}"
        lines = self.stderr.decode("utf-8", "replace").strip().split("\n")
        # Node says its version last.
        last = next((line for line in reversed(lines) if "Error" in line), lines[-1]).strip()[:300]
        return "" if status == 0 else f"exit status {status}{': ' if last else ''}{last}"


def signal_name(number: int) -> str:
    """A signal for a reason."""
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"


def run_script(
    zygote: ProgramZygote,
    request: dict[str, Any],
    stdin: bytes,
    deadline: Deadline,
    max_output: int,
    mode: str = "script",
) -> ScriptRun:
    """Run a program to its end, at most until `deadline` is over.

    Args:
        request: What its process is told.
        max_output: Bytes that it may print.
        mode: ``"script"``, ``"exec"`` for another program than Python's, or ``"build"`` for one
            that may start others.
    """
    with contextlib.ExitStack() as files:
        channel, theirs = map(files.enter_context, socket.socketpair())
        out, err = _Printed(files), _Printed(files)
        zygote.fork(mode, [_input(stdin, files), out.fd, err.fd, theirs.fileno()])
        theirs.close()
        stopped, late = "", False
        ended = None
        try:
            # One that ends before it read this has its own exit status.
            with contextlib.suppress(ChannelClosedError):
                send(channel, encode(request), deadline.end)
            channel.close()
            if _has_ended(zygote, deadline, lambda: out.size() + err.size() > max_output):
                ended = zygote.end(time.monotonic())
            elif out.size() + err.size() <= max_output:
                stopped, late = f"it did not end within {deadline.seconds:.2g} s", True
        except TimeoutError:
            stopped, late = f"it did not start within {deadline.seconds:.2g} s", True
        finally:
            if ended is None and zygote.running:
                ended = zygote.end()
        assert ended is not None  # it ended by itself, or was killed
        if out.size() + err.size() > max_output:
            stopped, late = f"it printed more than {max_output} bytes", False
        return ScriptRun(
            out.first(max_output), err.last(_MOST_STDERR), stopped, ended, late and ended.was_starved(deadline)
        )


def _has_ended(zygote: ProgramZygote, deadline: Deadline, printed_too_much: Callable[[], bool]) -> bool:
    """Waits for the end of the program's process; False if that takes too long, or if it prints too
    much."""
    poll = select.poll()
    poll.register(zygote.fileno(), select.POLLIN)
    while not printed_too_much():
        left = deadline.at - time.monotonic()
        if left <= 0 and deadline.is_over(zygote.used):
            return False
        if zygote.ended or poll.poll(1000 * min(max(left, 0), _LOOK_S)):
            return True
    return False


def _input(data: bytes, owner: contextlib.ExitStack) -> int:
    """A file in memory with this, that can only be read."""
    fd = os.memfd_create("stdin", os.MFD_CLOEXEC)
    with open(fd, "wb") as file:
        file.write(data)
        file.flush()
        read = os.open(f"/proc/self/fd/{fd}", os.O_RDONLY | os.O_CLOEXEC)
    owner.callback(os.close, read)
    return read


class _Printed:
    """A file in memory that a program prints to."""

    def __init__(self, owner: contextlib.ExitStack) -> None:
        self.fd = os.memfd_create("output", os.MFD_CLOEXEC)
        owner.callback(os.close, self.fd)

    def size(self) -> int:
        return os.fstat(self.fd).st_size

    def first(self, most: int) -> bytes:
        return os.pread(self.fd, min(self.size(), most), 0)

    def last(self, most: int) -> bytes:
        return os.pread(self.fd, most, max(self.size() - most, 0))

"""One run of a program that reads standard input and writes standard output.

- Standard input is a file, as judges give it: programs ask for its size, map it, or read it again.
- All that it prints is read while it runs, up to a limit; then it is killed.
- When this returns, nothing of the program is left.
"""

from __future__ import annotations

import contextlib
import os
import select
import signal
import socket
import time
from dataclasses import dataclass
from typing import Any, Final

from guerdon.rewards.code.child.arguments import pack
from guerdon.rewards.code.child.frames import ChannelClosedError, send
from guerdon.rewards.code.zygote.deadline import Deadline
from guerdon.rewards.code.zygote.zygote_process import ProgramEnd, ProgramZygote

__all__ = ["STDIN", "ScriptRun", "exit_fault", "run_script", "signal_name"]

STDIN: Final = "/dev/stdin"
"""A program whose text has this opens its input by name."""
_PIECE: Final = 1 << 16
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
    ended: ProgramEnd
    starved: bool = False

    @property
    def fault(self) -> str:
        """Why it did not end as a program should; "" where it did."""
        if self.stopped:
            return self.stopped
        return exit_fault(self.ended.status, self.stderr.decode("utf-8", "replace"))


def exit_fault(status: int, stderr: str) -> str:
    """The fault of an end, with the last line of standard error; "" for a success."""
    if status < 0:
        return f"it was ended by {signal_name(-status)}"
    lines = stderr.strip().split("\n")
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
    with contextlib.ExitStack() as ours, contextlib.ExitStack() as given:
        channel, theirs = socket.socketpair()
        ours.enter_context(channel)
        given.enter_context(theirs)
        child_in = _file(stdin, given)
        (out, child_out), (err, child_err) = (_pipe(ours, given) for _ in range(2))
        zygote.fork(mode, [child_in, child_out, child_err, theirs.fileno()])
        given.close()
        return _Conversation(zygote, out, err).to_end(channel, pack(request), deadline, max_output)


def _file(data: bytes, owner: contextlib.ExitStack) -> int:
    """Returns a read-only file in memory with these bytes."""
    fd = os.memfd_create("stdin", os.MFD_CLOEXEC)
    with open(fd, "wb") as file:
        file.write(data)
        file.flush()
        read = os.open(f"/proc/self/fd/{fd}", os.O_RDONLY | os.O_CLOEXEC)
    owner.callback(os.close, read)
    return read


def _pipe(reader: contextlib.ExitStack, writer: contextlib.ExitStack) -> tuple[int, int]:
    """Makes a pipe, whose ends belong to these."""
    ends = os.pipe2(os.O_CLOEXEC)
    reader.callback(os.close, ends[0])
    writer.callback(os.close, ends[1])
    return ends


class _Conversation:
    def __init__(self, zygote: ProgramZygote, out: int, err: int) -> None:
        self._zygote = zygote
        self._out, self._err = out, err
        self._stdout, self._stderr = bytearray(), bytearray()
        self._printed = 0
        for fd in (out, err):
            os.set_blocking(fd, False)

    def to_end(self, channel: socket.socket, request: bytes, deadline: Deadline, most: int) -> ScriptRun:
        stopped, late = "", False
        ended = None
        try:
            # A program that ends before it has read this has its own exit status.
            with contextlib.suppress(ChannelClosedError):
                send(channel, request, deadline.end)
            channel.close()
            if self._talk(deadline, most):
                ended = self._zygote.end(time.monotonic())
            elif self._printed > most:
                stopped = f"it printed more than {most} bytes"
            else:
                stopped, late = f"it did not end within {deadline.seconds:.2g} s", True
        except TimeoutError:
            stopped, late = f"it did not start within {deadline.seconds:.2g} s", True
        finally:
            if ended is None and self._zygote.running:
                ended = self._zygote.end()
        assert ended is not None  # it ended by itself, or was killed
        self._read(self._out, self._stdout, most)
        self._read(self._err, self._stderr, most)
        if not stopped and self._printed > most:
            stopped = f"it printed more than {most} bytes"
        starved = late and ended.was_starved(deadline)
        return ScriptRun(bytes(self._stdout), bytes(self._stderr[-_MOST_STDERR:]), stopped, ended, starved)

    def _talk(self, deadline: Deadline, most: int) -> bool:
        """Read until the program's process has ended; False if that takes too long, or if
        it prints too much."""
        poll = select.poll()
        for fd in (self._out, self._err, self._zygote.fileno()):
            poll.register(fd, select.POLLIN)
        while True:
            left = deadline.at - time.monotonic()
            if self._printed > most or (left <= 0 and deadline.is_over(self._zygote.used)):
                return False
            if self._zygote.ended:
                return True
            if left <= 0:
                continue
            for fd, _ in poll.poll(left * 1000):
                if fd == self._out or fd == self._err:
                    if not self._read(fd, self._stdout if fd == self._out else self._stderr, most):
                        poll.unregister(fd)
                else:
                    return True

    def _read(self, fd: int, into: bytearray, most: int) -> bool:
        """Reads the bytes that are there; False at the end of it."""
        while self._printed <= most:
            try:
                piece = os.read(fd, _PIECE)
            except BlockingIOError:
                return True
            if not piece:
                return False
            into += piece
            self._printed += len(piece)
        return True

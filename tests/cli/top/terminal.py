"""A terminal to run `guerdon top` in: a pseudo-terminal, and pyte's picture of what it shows."""

from __future__ import annotations

import fcntl
import os
import pty
import select
import signal
import struct
import subprocess
import sys
import termios
import time
from collections.abc import Callable

import pyte


class Terminal:
    """A program in a terminal of its own."""

    def __init__(self, *arguments: str, columns: int = 100, rows: int = 30, **environment: str) -> None:
        self.screen = pyte.Screen(columns, rows)
        self._stream = pyte.ByteStream(self.screen)
        self.raw = bytearray()
        self._master, slave = pty.openpty()
        self._set_size(columns, rows)
        self.before = termios.tcgetattr(slave)
        self._slave = slave
        self.program = subprocess.Popen(
            [sys.executable, "-m", "guerdon", "top", "--interval", "0.2", *arguments],
            stdin=slave,
            stdout=slave,
            stderr=slave,
            start_new_session=True,
            preexec_fn=lambda: fcntl.ioctl(slave, termios.TIOCSCTTY, 0),
            env={**os.environ, "TERM": "xterm-256color", "COLUMNS": "77", "LINES": "33", **environment},
        )

    def _set_size(self, columns: int, rows: int) -> None:
        fcntl.ioctl(self._master, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))

    def resize(self, columns: int, rows: int) -> None:
        self.screen.resize(rows, columns)
        self._set_size(columns, rows)  # the kernel sends SIGWINCH

    def type(self, keys: str) -> None:
        os.write(self._master, keys.encode())

    def signal(self, number: signal.Signals) -> None:
        self.program.send_signal(number)

    @property
    def lines(self) -> list[str]:
        return [line.rstrip() for line in self.screen.display]

    @property
    def text(self) -> str:
        return "\n".join(self.lines)

    def read(self, seconds: float) -> None:
        """Takes what comes in this time."""
        end = time.monotonic() + seconds
        while (left := end - time.monotonic()) > 0:
            if not select.select([self._master], [], [], left)[0]:
                return
            try:
                piece = os.read(self._master, 1 << 16)
            except OSError:  # nobody has the other end any more
                return
            self.raw += piece
            self._stream.feed(piece)

    def wait(self, shown: str | Callable[[], bool], seconds: float = 90) -> None:
        """Waits until the screen shows a text, or something is true."""
        end = time.monotonic() + seconds
        while not (shown in self.text if isinstance(shown, str) else shown()):
            assert time.monotonic() < end, f"{shown!r} never came:\n{self.text}"
            assert self.program.poll() is None, f"it ended with {self.program.returncode}:\n{self.text}"
            self.read(0.1)

    def wait_for_order(self, first: str, second: str) -> None:
        """Waits until both texts are shown, in this order; a picture may come in parts."""
        self.wait(lambda: first in self.text and second in self.text.partition(first)[2])

    def end(self, seconds: float = 90) -> int:
        """Waits for the program's end; its exit code."""
        end = time.monotonic() + seconds
        while self.program.poll() is None:
            assert time.monotonic() < end, self.text
            self.read(0.05)
        self.read(0.2)
        return self.program.returncode

    def quit(self) -> None:
        """Ends the program as its user does; the terminal is left as it was."""
        self.type("q")
        assert self.end() == 0
        assert self.is_as_before()

    def is_as_before(self) -> bool:
        """Whether the terminal is in its old mode, with its cursor and its first screen."""
        modes = termios.tcgetattr(self._slave) == self.before
        return (
            modes and self.raw.rfind(b"\x1b[?1049l") > self.raw.rfind(b"\x1b[?1049h") and not self.screen.cursor.hidden
        )

    def close(self) -> None:
        if self.program.poll() is None:
            self.program.kill()
        self.program.wait()
        os.close(self._master)
        os.close(self._slave)

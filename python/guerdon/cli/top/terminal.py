"""The terminal: draws frames, reads keys, and leaves it as it was, however it ends.

- Nothing blocks: keys, signals and answers come to one event loop.
- The alternate screen is used, so what was on the terminal is there again afterwards; SIGTERM,
  Ctrl-C, a hang-up and errors all lead through the same clean-up.
"""

from __future__ import annotations

import asyncio
import os
import re
import signal
import sys
import termios
import time
import tty
from typing import Final

from rich.console import Console, ConsoleDimensions
from rich.live import Live

from guerdon.cli.top.board import Board
from guerdon.cli.top.layout import View, frame, visible_calls
from guerdon.cli.top.sockets import nothing_found
from guerdon.profile.exit_codes import INTERRUPTED

__all__ = ["show"]

_ENDS: Final = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
# An unknown sequence is one key too: its letters mean nothing.
_KEY: Final = re.compile(rb"\x1b\[[0-9;?]*[@-~]|\x1bO.|.", re.S)
_DOWN: Final = (b"j", b"\x1b[B", b"\x1bOB")
_UP: Final = (b"k", b"\x1b[A", b"\x1bOA")


def show(board: Board, interval: float) -> None:
    """Show the board until the user quits.

    Raises:
        KeyboardInterrupt: By Ctrl-C.
        SystemExit: By a signal, with 128 and its number.
    """
    terminal = sys.stdin.fileno()
    before = termios.tcgetattr(terminal)
    try:
        tty.setcbreak(terminal)
        ended = asyncio.run(_Screen(board, interval).run(terminal))
    finally:
        termios.tcsetattr(terminal, termios.TCSADRAIN, before)
    if ended is not None:
        raise SystemExit(INTERRUPTED if ended == signal.SIGINT else 128 + ended)


class _Screen:
    """One showing."""

    def __init__(self, board: Board, interval: float) -> None:
        self._board = board
        self._interval = interval
        self._console = Console(highlight=False, markup=False, emoji=False)
        self._view = View()
        self._changed = asyncio.Event()
        self._quit = False
        self._ended: signal.Signals | None = None

    async def run(self, terminal: int) -> signal.Signals | None:
        """Show until the end; the signal that ended it."""
        loop = asyncio.get_running_loop()
        for number in _ENDS:
            loop.add_signal_handler(number, self._end, number)
        loop.add_signal_handler(signal.SIGWINCH, self._changed.set)
        # A shell that gets its terminal back in the alternate screen shows nothing.
        signal.signal(signal.SIGTSTP, signal.SIG_IGN)
        loop.add_reader(terminal, self._read, terminal)
        options = {"screen": True, "auto_refresh": False, "redirect_stdout": False, "redirect_stderr": False}
        with Live(console=self._console, **options) as live:  # type: ignore[arg-type]
            while not self._quit:
                self._board.look()
                # Answers come at once, as a rule: they are in the frame that asked for them.
                await asyncio.sleep(min(0.05, self._interval / 4))
                await self._draw(live)
        loop.remove_reader(terminal)
        await self._board.close()
        return self._ended

    async def _draw(self, live: Live) -> None:
        """Draw until the next look is due."""
        until = time.monotonic() + self._interval
        while not self._quit:
            self._changed.clear()
            # Not what COLUMNS and LINES say: they stay when the terminal changes.
            width, height = os.get_terminal_size(sys.stdout.fileno())
            width, height = width or 80, height or 24
            self._console.size = ConsoleDimensions(width, height)
            seen, nothing = self._board.seen(self._interval), nothing_found(self._board.pid)
            live.update(frame(seen, self._view, width, height, nothing), refresh=True)
            try:
                await asyncio.wait_for(self._changed.wait(), max(0.0, until - time.monotonic()))
            except TimeoutError:
                return

    def _end(self, number: signal.Signals) -> None:
        self._ended, self._quit = number, True
        self._changed.set()

    def _read(self, terminal: int) -> None:
        try:
            typed = os.read(terminal, 1024)
        except BlockingIOError:
            return
        except OSError:  # the terminal is gone
            typed = b""
        if not typed:
            self._end(signal.SIGHUP)
        for key in _KEY.findall(typed):
            self._press(key)
        self._changed.set()

    def _press(self, key: bytes) -> None:
        view = self._view
        if key in b"qQ":
            self._quit = True
        elif key in (*_DOWN, *_UP):
            self._select(1 if key in _DOWN else -1)
        elif key in b"\r\n":
            view.whole_stack = not view.whole_stack and view.selected is not None
        elif key == b"\x1b":
            view.whole_stack, view.selected = False, None

    def _select(self, step: int) -> None:
        keys = [call["key"] for call in visible_calls(self._board.seen(self._interval))]
        # The arrows lead from no call to the first and to the last.
        before = keys.index(self._view.selected) if self._view.selected in keys else -1 if step > 0 else len(keys)
        self._view.selected = keys[max(0, min(before + step, len(keys) - 1))] if keys else None

"""The terminal: draws frames, reads keys, and leaves it as it was, however it ends.

- Nothing blocks: keys, signals and answers come to one event loop.
- The alternate screen is used, so what was on the terminal is there again afterwards; SIGTERM,
  Ctrl-C, a hang-up and errors all lead through the same clean-up.
"""

from __future__ import annotations

import asyncio
import os
import signal
import sys
import termios
import time
import tty
from collections.abc import Sequence
from typing import Any, Final

from rich.console import Console, ConsoleDimensions
from rich.live import Live

from guerdon.cli.top.board import Board, Seen
from guerdon.cli.top.frame import SORTS, View, frame, visible_calls
from guerdon.cli.top.keys import Keys
from guerdon.profile.exit_codes import INTERRUPTED

__all__ = ["Screen", "show"]

_ENDS: Final = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


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
        ended = asyncio.run(Screen(board, interval, before).run(terminal))
    finally:
        termios.tcsetattr(terminal, termios.TCSADRAIN, before)
    if ended is not None:
        raise SystemExit(INTERRUPTED if ended == signal.SIGINT else 128 + ended)


class Screen:
    """One showing."""

    def __init__(self, board: Board, interval: float, before: list[Any]) -> None:
        self._board = board
        self._interval = interval
        self._before = before
        self._console = Console(highlight=False, markup=False, emoji=False)
        self._view = View()
        self._keys = Keys()
        self._frozen: Sequence[Seen] = ()
        self._changed = asyncio.Event()
        self._quit = False
        self._ended: signal.Signals | None = None

    async def run(self, terminal: int) -> signal.Signals | None:
        """Show until the end; the signal that ended it."""
        loop = asyncio.get_running_loop()
        for number in _ENDS:
            loop.add_signal_handler(number, self._end, number)
        loop.add_signal_handler(signal.SIGWINCH, self._changed.set)
        loop.add_reader(terminal, self._read, terminal)
        options = {"screen": True, "auto_refresh": False, "redirect_stdout": False, "redirect_stderr": False}
        with Live(console=self._console, **options) as live:  # type: ignore[arg-type]
            loop.add_signal_handler(signal.SIGTSTP, self._stop, live, terminal)
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
            seen, nothing = self._seen(), self._board.finder.nothing_found()
            live.update(frame(seen, self._view, width, height, nothing), refresh=True)
            left = until - time.monotonic()
            if left <= 0:
                return
            try:
                await asyncio.wait_for(self._changed.wait(), left)
            except TimeoutError:
                return

    def _seen(self) -> Sequence[Seen]:
        return self._board.seen(self._interval) if self._view.paused is None else self._frozen

    def _stop(self, live: Live, terminal: int) -> None:
        """Ctrl-Z: the shell gets its terminal back until the user goes on."""
        mode = termios.tcgetattr(terminal)
        live.stop()
        termios.tcsetattr(terminal, termios.TCSADRAIN, self._before)
        os.kill(os.getpid(), signal.SIGSTOP)
        termios.tcsetattr(terminal, termios.TCSADRAIN, mode)
        live.start(refresh=True)
        self._changed.set()

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
        for key in self._keys.feed(typed):
            self._press(key)
        self._changed.set()

    def _press(self, key: str) -> None:
        view = self._view
        if view.typing:
            self._type(key)
        elif key in ("q", "Q"):
            self._quit = True
        elif key == "p":
            self._frozen = () if view.paused else self._board.seen(self._interval)
            view.paused = None if view.paused else time.strftime("%H:%M:%S")
        elif key == "s":
            view.sort = SORTS[(SORTS.index(view.sort) + 1) % len(SORTS)]
        elif key == "/":
            view.typing, view.filter = True, ""
        elif key in ("j", "down", "k", "up"):
            self._select(1 if key in ("j", "down") else -1)
        elif key == "enter":
            view.whole_stack = not view.whole_stack and view.selected is not None
        elif key == "escape":
            view.filter, view.whole_stack, view.selected = "", False, None

    def _type(self, key: str) -> None:
        view = self._view
        if key in ("enter", "escape"):
            view.typing = False
            view.filter = view.filter if key == "enter" else ""
        elif key == "backspace":
            view.filter = view.filter[:-1]
        elif len(key) == 1 and len(view.filter) < 40:
            view.filter += key

    def _select(self, step: int) -> None:
        calls = visible_calls(self._seen(), self._view)
        keys = [call.key for call in calls]
        if not keys:
            self._view.selected = None
        elif self._view.selected in keys:
            at = keys.index(self._view.selected) + step
            self._view.selected = keys[max(0, min(at, len(keys) - 1))]
        else:
            self._view.selected = keys[0 if step > 0 else -1]

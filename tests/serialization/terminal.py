"""A program in a terminal: what is typed, and what the screen shows."""

from __future__ import annotations

import os
import pty
import re
import select
import signal
import subprocess
import time
from collections.abc import Sequence
from pathlib import Path

# Colours, cursor moves, titles and modes, which no test looks at.
_CONTROLS = re.compile(r"\x1b\[[0-?]*[ -/]*[@-~]|\x1b\][^\x07]*\x07|\x1b[=>()][A-Z0-9]?")
PATIENCE_S = 60.0


class Terminal:
    """Runs `command` as the foreground of a terminal of its own."""

    def __init__(self, command: Sequence[str], cwd: Path, environment: dict[str, str]) -> None:
        self._main, side = pty.openpty()
        self._process = subprocess.Popen(
            command,
            cwd=cwd,
            env={**environment, "TERM": "xterm", "PROMPT_TOOLKIT_NO_CPR": "1", "COLUMNS": "200"},
            stdin=side,
            stdout=side,
            stderr=side,
            start_new_session=True,
            preexec_fn=_take_terminal,
        )
        os.close(side)
        self._seen = ""

    def wait_for(self, pattern: str) -> re.Match[str]:
        """The first place in what was shown since the last match."""
        deadline = time.monotonic() + PATIENCE_S
        while (match := re.search(pattern, self._seen)) is None:
            left = deadline - time.monotonic()
            ready, _, _ = select.select([self._main], [], [], max(left, 0))
            assert ready, f"the terminal never showed {pattern!r}, but:\n{self._seen}"
            try:
                shown = os.read(self._main, 65536).decode(errors="replace")
            except OSError:  # the last one who held the other side is gone
                shown = ""
            assert shown, f"the program ended before it showed {pattern!r}:\n{self._seen}"
            self._seen = _CONTROLS.sub("", self._seen + shown)
        self._seen = self._seen[match.end() :]
        return match

    def type(self, text: str) -> None:
        os.write(self._main, text.encode())

    def close(self) -> int:
        """The exit code of the program, which is killed if it doesn't end."""
        deadline = time.monotonic() + PATIENCE_S
        while self._process.poll() is None and time.monotonic() < deadline:
            ready, _, _ = select.select([self._main], [], [], 0.05)
            if ready:
                try:
                    os.read(self._main, 65536)
                except OSError:
                    time.sleep(0.01)
        if self._process.poll() is None:
            os.killpg(self._process.pid, signal.SIGKILL)
        code = self._process.wait()
        os.close(self._main)
        return code


def _take_terminal() -> None:
    import fcntl
    import termios

    fcntl.ioctl(0, termios.TIOCSCTTY, 0)

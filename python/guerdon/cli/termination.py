"""SIGTERM and a hang-up end a command as errors do: its temporary files and workers go with it."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Final, NoReturn

__all__ = ["ended_by_signals"]

_ENDS: Final = (signal.SIGTERM, signal.SIGHUP)


@contextmanager
def ended_by_signals() -> Iterator[None]:
    """A signal in here raises `SystemExit` with 128 and its number; a second one ends the process
    at once. Signals that are ignored or handled already stay so."""
    main = threading.current_thread() is threading.main_thread()
    taken = [number for number in _ENDS if main and signal.getsignal(number) is signal.SIG_DFL]
    for number in taken:
        signal.signal(number, _end)
    try:
        yield
    finally:
        for number in taken:
            signal.signal(number, signal.SIG_DFL)


def _end(number: int, frame: FrameType | None) -> NoReturn:
    signal.signal(number, signal.SIG_DFL)
    raise SystemExit(128 + number)

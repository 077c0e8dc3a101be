"""Threads of this process, with and without the GIL: what runs on one, and the context it begins
with."""

from __future__ import annotations

import contextvars
import faulthandler
import os
import re
import sys
from typing import Any, Final

__all__ = ["empty_context", "has_gil", "running_frames"]

_FRAME: Final = re.compile(r'  File "(.*)", line (\d+) in (.*)')
_ESCAPED: Final = re.compile(r"\\(?:x[0-9a-f]{2}|u[0-9a-f]{4}|U[0-9a-f]{8})")


def has_gil() -> bool:
    """Returns whether one thread at a time runs Python."""
    return bool(getattr(sys, "_is_gil_enabled", lambda: True)())


def running_frames(ident: int) -> list[tuple[str, int, str]]:
    """File, line and function of each frame of a thread (without the GIL, of the innermost
    hundred), the innermost first; empty if it is gone or can't be read."""
    if not has_gil():
        return _dumped_frames(ident)
    found = []
    frame = sys._current_frames().get(ident)
    while frame is not None:
        found.append((frame.f_code.co_filename, frame.f_lineno or 0, frame.f_code.co_name))
        frame = frame.f_back
    return found


def empty_context() -> dict[str, Any]:
    """Options of a `threading.Thread` that begins in an empty context.

    A thread of a free-threaded Python inherits the context of its starter, and for its whole life
    the filters of a ``warnings.catch_warnings`` there.
    """
    return {"context": contextvars.Context()} if sys.version_info >= (3, 14) else {}


def _dumped_frames(ident: int) -> list[tuple[str, int, str]]:
    # Frames of a thread that runs may not be read without the GIL. `faulthandler` stops all threads
    # while it reads.
    try:
        with open(os.memfd_create("guerdon stacks"), "r+", encoding="ascii", errors="replace") as file:
            faulthandler.dump_traceback(file, all_threads=True)
            file.seek(0)
            stacks = file.read().split("\n\n")
    except OSError:  # no descriptor is left
        return []
    stack = next((stack for stack in stacks if f"hread 0x{ident:016x} " in stack.partition("\n")[0]), "")
    frames = filter(None, map(_FRAME.fullmatch, stack.splitlines()))
    return [(_unescaped(frame[1]), int(frame[2]), _unescaped(frame[3])) for frame in frames]


def _unescaped(text: str) -> str:
    return _ESCAPED.sub(lambda one: chr(int(one[0][2:], 16)), text)

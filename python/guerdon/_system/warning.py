"""Guerdon's warnings, and how to warn on threads where nobody can catch an exception."""

from __future__ import annotations

import os
import sys
import threading
import warnings
from typing import Final

from guerdon._system.gil import has_gil

__all__ = ["GuerdonWarning", "warn"]


class GuerdonWarning(RuntimeWarning):
    """Something works, but not as well as it could, or not as expected. Filter on it to silence
    Guerdon."""


def warn(
    message: str, filename: str | None = None, line: int = 1, *, category: type[GuerdonWarning] = GuerdonWarning
) -> None:
    """Warn as if `message` came from that line; a filter that raises makes it a line on stderr.

    The default line is the user's line that runs on the main thread, which usually waits for
    rewards. If the engine serves other processes, the warning goes to the handler of that engine's
    threads.
    """
    tell = getattr(threading.current_thread(), "tell", None)
    if tell is not None:
        tell(message)
        return
    if filename is None:
        filename, line = _users_line()
    try:
        warnings.warn_explicit(message, category, filename, line)
    except Warning as error:
        print(f"guerdon: {error}", file=sys.stderr)  # noqa: T201 - an exception here would reach nobody


# Folders of Python, and of this package with the ones installed beside it.
_NOT_THE_USERS: Final = (os.path.dirname(os.__file__), os.path.dirname(os.path.dirname(os.path.dirname(__file__))))


def _users_line() -> tuple[str, int]:
    """The innermost line of the main thread outside of libraries; without a file if all are in
    libraries, or on another thread without the GIL."""
    main = threading.main_thread().ident or 0
    if has_gil():
        frame = sys._current_frames().get(main)
    else:
        frame = sys._getframe() if threading.get_ident() == main else None
    while frame is not None:
        file = frame.f_code.co_filename
        if not file.startswith(("<", *_NOT_THE_USERS)):
            return file, frame.f_lineno
        frame = frame.f_back
    return "<guerdon>", 1

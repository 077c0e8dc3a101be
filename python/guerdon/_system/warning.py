"""Warnings that come from the lanes' own threads, where nobody can catch an exception."""

from __future__ import annotations

import sys
import threading
import warnings

from guerdon.errors import GuerdonWarning


def warn(
    message: str, filename: str = "<guerdon>", line: int = 1, *, category: type[GuerdonWarning] = GuerdonWarning
) -> None:
    """Warn as if `message` came from that line; a filter that raises makes it a line on stderr.

    Without a line of the user's it names no file: Python would show a line of this one, which says
    nothing, and of a name without brackets a line of the file that is called so. Who serves an
    engine elsewhere hears it instead, on the threads of that engine.
    """
    tell = getattr(threading.current_thread(), "tell", None)
    if tell is not None:
        tell(message)
        return
    try:
        warnings.warn_explicit(message, category, filename, line)
    except Warning as error:
        print(f"guerdon: {error}", file=sys.stderr)  # noqa: T201 - an exception here would reach nobody

"""Reasons against writing to a path, checked before any work is done for it."""

from __future__ import annotations

import os
import stat

__all__ = ["why_no_file", "why_no_folder"]

_KINDS = (
    (stat.S_ISREG, "a file"),
    (stat.S_ISDIR, "a folder"),
    (stat.S_ISFIFO, "a pipe"),
    (stat.S_ISSOCK, "a socket"),
    (stat.S_ISCHR, "a device"),
    (stat.S_ISBLK, "a device"),
)


def why_no_file(name: str | os.PathLike[str]) -> str | None:
    """Returns the reason why this can't be the path of a file to write; None if it can.

    A link counts as its target.
    """
    try:
        path = os.path.realpath(name)
        there = _kind(path)
        if there is None:
            folder = os.path.dirname(path)
            if not os.path.isdir(folder):
                return f"there is no folder {folder!r}. Make it first"
            return None if os.access(folder, os.W_OK | os.X_OK) else f"this user can't write into the folder {folder!r}"
        if there != "a file":
            return f"that is no file: it is {there}"
        return None if os.access(path, os.W_OK) else "this user can't write it"
    except (OSError, ValueError) as error:  # a loop of links, a name that is too long, a NUL
        return _text(error)


def why_no_folder(name: str | os.PathLike[str]) -> str | None:
    """The same for a folder to write in, which is created if it is missing."""
    try:
        path = os.path.realpath(name)
        while (there := _kind(path)) is None:
            path = os.path.dirname(path)
        if there != "a folder":
            return f"{path!r} is no folder: it is {there}"
        return None if os.access(path, os.W_OK | os.X_OK) else f"this user can't write into the folder {path!r}"
    except (OSError, ValueError) as error:
        return _text(error)


def _kind(path: str) -> str | None:
    """Returns the kind of an existing file; None: nothing."""
    try:
        mode = os.stat(path).st_mode
    except (FileNotFoundError, NotADirectoryError):
        return None
    return next((name for is_one, name in _KINDS if is_one(mode)), "something else")


def _text(error: OSError | ValueError) -> str:
    return (isinstance(error, OSError) and error.strerror) or str(error)

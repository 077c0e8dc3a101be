"""The folder of programs that have no fences: one a zygote, among the temporary files.

A zygote that is killed leaves its own behind. Each holds a lock on its folder, which ends with it;
the next zygote removes those that nobody holds.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import shutil
import tempfile
from collections.abc import Iterator
from typing import Final

__all__ = ["clear", "unfenced_folder"]

_PREFIX: Final = "guerdon-code-run-"
# Another zygote may take a folder that is not locked yet for a leftover.
_TRIES: Final = 5


@contextlib.contextmanager
def unfenced_folder() -> Iterator[str]:
    """The path of a folder that is to be made, and is removed at the end."""
    parent = tempfile.gettempdir()
    _remove_left(parent)
    path, held = _made(parent)
    try:
        # One below: a program may remove its own, and gets another by the same name.
        yield os.path.join(path, "own")
    finally:
        shutil.rmtree(path, ignore_errors=True)
        os.close(held)


def clear(folder: str) -> None:
    """Removes all that is in it."""
    for entry in list(os.scandir(folder)):
        if entry.is_dir(follow_symlinks=False):
            shutil.rmtree(entry.path, ignore_errors=True)
        else:
            os.unlink(entry.path)


def _made(parent: str) -> tuple[str, int]:
    for _ in range(_TRIES):
        path = tempfile.mkdtemp(prefix=_PREFIX, dir=parent)
        with contextlib.suppress(OSError):
            held = _lock(path)
            if os.path.exists(path):
                return path, held
            os.close(held)
    raise OSError(f"no folder for programs can be kept in {parent}")


def _lock(path: str) -> int:
    """A descriptor that holds a folder, alone; an `OSError` where another process does."""
    fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        os.close(fd)
        raise
    return fd


def _remove_left(parent: str) -> None:
    """Removes folders of this user that no zygote holds any more."""
    for entry in os.scandir(parent):
        if not entry.name.startswith(_PREFIX):
            continue
        with contextlib.suppress(OSError):
            if entry.stat(follow_symlinks=False).st_uid != os.geteuid():
                continue
            held = _lock(entry.path)
            shutil.rmtree(entry.path, ignore_errors=True)
            os.close(held)

"""Folders for sockets of this host's processes: in a folder that only this user can enter.

Sockets of killed processes are removed by the next process that uses the folder.
"""

from __future__ import annotations

import contextlib
import os
import socket
import stat
import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Final

# The longest path of a Unix socket, with its end mark, is 108 bytes.
_LONGEST_PATH: Final = 107


class NoFolderError(Exception):
    """No folder is suitable for a socket, for the reason in the message."""


def folders(environ: Mapping[str, str] = os.environ) -> list[Path]:
    """Returns the possible folders, the first choice first: in the user's runtime folder, or in one
    of the user's own below the folder for temporary files; none where nothing can be written."""
    runtime = environ.get("XDG_RUNTIME_DIR", "")
    found = [Path(runtime, "guerdon")] if os.path.isabs(runtime) else []
    with contextlib.suppress(FileNotFoundError):  # a container of which all is read-only
        found.append(Path(tempfile.gettempdir(), f"guerdon-{os.getuid()}"))
    return found


def socket_path(name: str, remove_stale: Callable[[Path], None], environ: Mapping[str, str] = os.environ) -> Path:
    """The path of a socket of this name, in a folder that is there and private.

    Args:
        remove_stale: Removes from a folder what is of processes that are gone.

    Raises:
        NoFolderError: No folder will do.
    """
    problem = "there is no folder for temporary files that can be written: set TMPDIR or XDG_RUNTIME_DIR"
    for folder in folders(environ):
        try:
            _make_private(folder)
            remove_stale(folder)
        except OSError as error:
            problem = str(error)
            continue
        path = folder / name
        if len(os.fsencode(path)) <= _LONGEST_PATH:
            return path
        problem = f"the path {os.fspath(path)!r} is too long for a socket"
    raise NoFolderError(problem)


def is_served(path: Path) -> bool:
    """Returns whether a process listens on a socket, though perhaps without answering."""
    with socket.socket(socket.AF_UNIX) as probe:
        probe.setblocking(False)
        try:
            probe.connect(os.fspath(path))
        except (ConnectionRefusedError, FileNotFoundError):
            return False
        except OSError:  # its backlog is full
            return True
    return True


def _make_private(folder: Path) -> None:
    """Makes the folder, for this user alone.

    Raises:
        OSError: It can't be made, or it is somebody else's.
    """
    with contextlib.suppress(FileExistsError):
        os.mkdir(folder, 0o700)
    found = os.lstat(folder)
    if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.geteuid() or found.st_mode & 0o077:
        raise PermissionError(f"{os.fspath(folder)!r} is not a folder of this user alone (mode 0700)")
    if not os.access(folder, os.W_OK | os.X_OK):
        raise PermissionError(f"{os.fspath(folder)!r} is not writable")

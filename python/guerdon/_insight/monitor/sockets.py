"""The sockets of the live state.

- One socket a running dispatcher, ``<pid>-<n>.sock``; it goes with the dispatcher.
- Sockets of processes that are gone are removed by the next process that looks.
- A missing socket stops nothing: it is only reported.
"""

from __future__ import annotations

import itertools
import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from guerdon._system.socket_folders import NoFolderError, is_served, socket_path

SWITCH: Final = "GUERDON_TOP"
"""The variable that, set to 0, switches the sockets off."""

_NAME: Final = re.compile(r"([1-9][0-9]*)-[1-9][0-9]*\.sock")
_count = itertools.count(1)


class NoSocketError(Exception):
    """There can be no socket; the message has the reason."""


def new_socket(environ: Mapping[str, str] = os.environ) -> str:
    """The path of a new socket, in a folder that is there and private.

    Raises:
        NoSocketError: They are switched off, or no folder will do.
    """
    if environ.get(SWITCH, "").strip().lower() in ("0", "false", "no", "off"):
        raise NoSocketError(f"switched off by {SWITCH}={environ[SWITCH]}")
    try:
        return os.fspath(socket_path(f"{os.getpid()}-{next(_count)}.sock", remove_stale, environ))
    except NoFolderError as error:
        raise NoSocketError(str(error)) from error


def remove_stale(folder: Path) -> None:
    """Removes the sockets of processes that are gone."""
    for path in folder.iterdir():
        match = _NAME.fullmatch(path.name)
        if match is not None and not _is_alive(int(match[1])) and not is_served(path):
            path.unlink(missing_ok=True)


def _is_alive(process: int) -> bool:
    try:
        os.kill(process, 0)
    except OverflowError:
        return False
    except OSError as error:
        return not isinstance(error, ProcessLookupError)
    return True

"""The sockets of running dispatchers: their places, and their answers.

- Only folders that belong to this user, and that nobody else can write to, are looked at.
- An answer has a bound, in bytes; nothing here blocks.
"""

from __future__ import annotations

import asyncio
import os
import re
import stat
from pathlib import Path
from typing import Final

from guerdon._system.socket_folders import folders

__all__ = ["AnswerError", "ask", "find_sockets", "nothing_found"]

_NAME: Final = re.compile(r"(\d{1,10})-(\d{1,10})\.sock")
_REQUEST: Final = b"GET /state HTTP/1.0\r\nHost: guerdon\r\nConnection: close\r\n\r\n"
_LARGEST: Final = 16 << 20


class AnswerError(Exception):
    """The answer did not come from a dispatcher."""


def find_sockets(pid: int | None) -> dict[Path, int]:
    """Sockets that are there, by path, with the process id that each names; of one process, or of
    all."""
    found = {}
    for folder in filter(_is_private, folders()):
        try:
            names = sorted(os.listdir(folder))
        except OSError:
            continue
        for name in names:
            match = _NAME.fullmatch(name)
            if match and pid in (None, int(match[1])):
                found[folder / name] = int(match[1])
    return found


def nothing_found(pid: int | None) -> str:
    """Returns the message for the case that no process answers."""
    who = "no running dispatcher" if pid is None else f"no running dispatcher in process {pid}"
    places = " or ".join(str(folder) for folder in folders())
    return (
        f"{who} found. A trainer has its socket <pid>-<n>.sock in {places} from its first batch to its end; it must "
        "run on this host, as this user, with the same XDG_RUNTIME_DIR and temporary folder, and without GUERDON_TOP=0."
    )


async def ask(path: Path) -> bytes:
    """The state of a dispatcher, as JSON. It waits as long as the dispatcher does not answer.

    Raises:
        OSError: Nobody listens there any more.
        AnswerError: What listens gives no state.
    """
    reader, writer = await asyncio.open_unix_connection(str(path))
    try:
        writer.write(_REQUEST)
        await writer.drain()
        answer = bytearray()
        while piece := await reader.read(1 << 16):
            answer += piece
            if len(answer) > _LARGEST:
                raise AnswerError(f"its state has more than {_LARGEST >> 20} MiB")
    finally:
        writer.close()
    head, _, body = bytes(answer).partition(b"\r\n\r\n")
    if head.split(b" ", 2)[1:2] != [b"200"]:
        raise AnswerError("it gave no state")
    return body


def _is_private(folder: Path) -> bool:
    try:
        found = os.lstat(folder)
    except OSError:
        return False
    return stat.S_ISDIR(found.st_mode) and found.st_uid == os.getuid() and not found.st_mode & 0o022

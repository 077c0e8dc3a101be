"""The process at the other end of a connection, by a handle that stays unambiguous if the pid is
reused.

- Linux has given that handle with the connection since 6.5. Before, it is opened by number: it
  counts if the process is as old afterwards as before, which leaves the moment of connecting.
- If an interpreter can't open one, the handle is None.
"""

from __future__ import annotations

import errno
import os
import signal
import socket
import struct
from pathlib import Path
from typing import Final, final

from guerdon._lanes.remote.shared_engine import greeting
from guerdon._lanes.remote.shared_engine.meeting import JoinError

__all__ = ["Peer"]

_SO_PEERPIDFD: Final = 77  # another number on MIPS and SPARC, which is why the handle is looked at
_HANDLE: Final = struct.Struct("i")


@final
class Peer:
    """The process at the other end; closes its handle as a context manager.

    Attributes:
        process: Its number.
    """

    def __init__(self, connection: socket.socket) -> None:
        """Looks at a connection.

        Raises:
            JoinError: It is another user's, or has ended.
        """
        self.process = greeting.peer_of(connection)
        self._handle = _given(connection, self.process)
        if self._handle is None:
            self._handle = _opened(self.process)

    def __enter__(self) -> Peer:
        return self

    def __exit__(self, *_: object) -> None:
        handle = self.detach()
        if handle is not None:
            os.close(handle)

    def detach(self) -> int | None:
        """The handle, from now on the caller's to close."""
        handle, self._handle = self._handle, None
        return handle

    def kill_if_stopped(self) -> bool:
        """Kills it if it is stopped; true if it was."""
        if self._handle is None:
            return False
        try:
            fields = _fields(self.process)
            # If that was another process, this one has ended, and gets nothing.
            if fields[0] not in ("T", "t"):
                return False
            signal.pidfd_send_signal(self._handle, signal.SIGKILL)
            return True
        except (OSError, IndexError):
            return False


def _given(connection: socket.socket, process: int) -> int | None:
    """The handle that comes with the connection, where the kernel has that."""
    try:
        (handle,) = _HANDLE.unpack(connection.getsockopt(socket.SOL_SOCKET, _SO_PEERPIDFD, _HANDLE.size))
    except OSError as error:
        if error.errno == errno.ESRCH:
            raise JoinError("the process at the other end has ended") from None
        return None
    try:
        about = Path(f"/proc/self/fdinfo/{handle}").read_text(encoding="ascii", errors="replace").split()
    except OSError:  # no handle, but some other option's number
        return None
    if "Pid:" not in about:
        return None
    if about[about.index("Pid:") + 1] != str(process):
        os.close(handle)
        raise JoinError("the process at the other end has ended")
    return int(handle)


def _opened(process: int) -> int | None:
    """A handle opened by number."""
    if not hasattr(os, "pidfd_open"):
        return None
    try:
        before = _fields(process)[_STARTED]
        handle = os.pidfd_open(process)
    except (OSError, IndexError):
        return None
    try:
        same = _fields(process)[_STARTED] == before
    except (OSError, IndexError):
        same = False
    if not same:
        os.close(handle)
        raise JoinError("the process at the other end has ended")
    return handle


# The state is the first field behind the name, the time of its start the 20th.
_STARTED: Final = 19


def _fields(process: int) -> list[str]:
    """Returns the kernel's fields about a process that follow its name: that may hold spaces and
    brackets."""
    with open(f"/proc/{process}/stat", encoding="utf-8", errors="replace") as file:
        return file.read().rpartition(")")[2].split()

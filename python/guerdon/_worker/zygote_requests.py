"""Requests of the engine to the zygote and the loader; the Rust side is
``process/src/zygote_requests.rs``."""

from __future__ import annotations

import array
import os
import socket
import struct
from typing import NamedTuple

# op, flags, value; descriptors beside it.
_REQUEST = struct.Struct("<IIQ")
# op, extra, value.
_REPLY = struct.Struct("<Iiq")

# [serialized functions, pidfd of the engine]: the first request, there before the zygote; no reply
FUNCTIONS = 1
LOADER = 2  # [control socket]: fork the loader, or another of a loader; reply: pid, or -errno
# [socket, page, output, stack]: fork a worker; value is its mark (`linux.mark_descendants`); reply:
# pid, or -errno
WORKER = 3
# value is the pid of a child that ended; reply: its wait status, or -1 if it is not a child; extra
# is the pid
REAP = 4
BECOME = 5  # like WORKER, but without a fork: the process itself becomes the worker; reply: its pid
END = 6  # kill all descendants and end; no reply
LOADED = 7  # sent once by a loader: extra is 1 if it can fork workers, larger if not
KNOW = 9  # value is the pid of a loader that was forked by another; no reply
# [memfd with names of modules, one a line]: import them before the next fork; value is how many ms
# a try may take; reply: extra as in LOADED, 1 too if they were left alone
PRELOAD = 10
ORPHANS = 8  # value is an ended worker's mark: kill the processes that it left behind; no reply

# Flag of WORKER: load all functions before reporting ready. If it is missing, they are loaded
# already, or each at its first call.
LOAD_FIRST = 1
# Flag of PRELOAD: import the modules in a child first, and leave them alone if that goes wrong.
TRY_FIRST = 1


class ForkRequest(NamedTuple):
    """A request, with the descriptors passed along."""

    op: int
    flags: int
    value: int
    fds: list[int]


class ControlSocket:
    """This process's end of its control socket."""

    def __init__(self, fd: int) -> None:
        self.socket = socket.socket(fileno=fd)
        self.socket.settimeout(None)  # user code may have changed the default at import

    def next(self) -> ForkRequest | None:
        """Waits for a request; None once the engine is gone."""
        data, fds = b"", array.array("i")
        while len(data) < _REQUEST.size:
            part, ancillary, _, _ = self.socket.recvmsg(
                _REQUEST.size - len(data), socket.CMSG_SPACE(4 * fds.itemsize), socket.MSG_CMSG_CLOEXEC
            )
            if not part:
                return None
            for level, kind, content in ancillary:
                if level == socket.SOL_SOCKET and kind == socket.SCM_RIGHTS:
                    fds.frombytes(content[: len(content) // fds.itemsize * fds.itemsize])
            data += part
        op, flags, value = _REQUEST.unpack(data)
        return ForkRequest(op, flags, value, list(fds))

    def reply(self, op: int, value: int, extra: int = 0) -> None:
        self.socket.sendall(_REPLY.pack(op, extra, value))

    def close(self) -> None:
        self.socket.close()


def close_all(fds: list[int]) -> None:
    for fd in fds:
        os.close(fd)

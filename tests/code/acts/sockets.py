"""Acts on the network and on sockets of this machine."""

from __future__ import annotations

import contextlib
import ctypes
import socket
import struct
from collections.abc import Callable

from tests.code.acts.act import Act, Targets

__all__ = ["SOCKETS"]

_SOCKETS = ("seccomp", "namespaces")
# Families whose sockets reach beyond the process, or large parts of the kernel.
_FAMILIES = {
    "Internet": (socket.AF_INET, socket.SOCK_DGRAM),
    "IPv6": (socket.AF_INET6, socket.SOCK_DGRAM),
    "Unix": (socket.AF_UNIX, socket.SOCK_DGRAM),
    "netlink": (16, socket.SOCK_RAW),
    "packet": (17, socket.SOCK_RAW),
    "cipher (AF_ALG)": (38, socket.SOCK_SEQPACKET),
    "virtual machine (AF_VSOCK)": (40, socket.SOCK_STREAM),
}


def _open(family: int, kind: int) -> None:
    socket.socket(family, kind).close()


def _connect_abstract(targets: Targets) -> None:
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as connection:
        connection.settimeout(1.0)
        connection.connect(f"\0{targets.abstract}")


def _connect_path(targets: Targets) -> None:
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as connection:
        connection.settimeout(1.0)
        connection.connect(f"{targets.folder}/socket")


def _listen(_: Targets) -> None:
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as connection:
        connection.bind(("127.0.0.1", 0))
        connection.listen()


def _out_of_band(_: Targets) -> None:
    """Unix sockets take such data since Linux 5.15; refused before that, too."""
    with contextlib.ExitStack() as stack:
        ours, _theirs = map(stack.enter_context, socket.socketpair())
        ours.send(b"x", socket.MSG_OOB)


def _option(ask: Callable[[socket.socket], object]) -> Callable[[Targets], object]:
    def attempt(_: Targets) -> None:
        with contextlib.ExitStack() as stack:
            ours, _theirs = map(stack.enter_context, socket.socketpair())
            ask(ours)

    return attempt


_ATTACH_FILTER = 26
_PEER_DESCRIPTOR = 77


def _attach_filter(ours: socket.socket) -> None:
    code = ctypes.create_string_buffer(struct.pack("=HBBI", 0x06, 0, 0, 0xFFFF), 8)  # takes all
    ours.setsockopt(socket.SOL_SOCKET, _ATTACH_FILTER, struct.pack("=H6xQ", 1, ctypes.addressof(code)))


def _datagrams(_: Targets) -> None:
    for one in socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM):
        one.close()


def _act(name: str, family: int, kind: int) -> Act:
    return Act(f"open a socket: {name}", ("seccomp",), lambda _: _open(family, kind))


SOCKETS = (
    *(_act(name, *family) for name, family in _FAMILIES.items()),
    Act("connect to an abstract socket", (*_SOCKETS, "landlock"), _connect_abstract),
    Act("connect to a socket in another's folder", _SOCKETS, _connect_path),
    Act("listen on a port", (*_SOCKETS, "landlock"), _listen),
    Act("open a pair of datagram sockets", ("seccomp",), _datagrams),
    Act("send data out of band", ("seccomp",), _out_of_band),
    Act("have the kernel filter messages", ("seccomp",), _option(_attach_filter)),
    Act(
        "have a descriptor of who is at the other end",
        ("seccomp",),
        _option(lambda ours: ours.getsockopt(socket.SOL_SOCKET, _PEER_DESCRIPTOR)),
    ),
)

"""Address of the server: on loopback by default, and on other addresses only with a token."""

from __future__ import annotations

import errno
import ipaddress
import os
import socket
from urllib.parse import urlsplit

from guerdon._serve.errors import ServerOptionError
from guerdon._serve.settings import BACKLOG


def listen(host: str, port: int, *, has_token: bool) -> list[socket.socket]:
    """Listening sockets for all addresses of a host.

    Raises:
        ServerOptionError: There is no such host, its port is taken, or it can be reached from
            elsewhere and no token is asked for.
    """
    try:
        found = socket.getaddrinfo(host or None, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
    except (OSError, UnicodeError) as error:
        raise ServerOptionError(f"--host {host!r}: {error}.") from None
    addresses = {(family, place[0]) for family, _, _, _, place in found}
    if not has_token and not all(_is_loopback(str(address)) for _, address in addresses):
        raise ServerOptionError(
            f"--host {host!r} can be reached from other machines, and no token is set: whoever reaches the port could "
            "have rewards computed. Give --token-file, or listen on 127.0.0.1."
        )
    sockets: list[socket.socket] = []
    try:
        for family, address in sorted(addresses):
            sockets.append(_bound(family, str(address), port))
            port = sockets[0].getsockname()[1]  # with 0 the others take the one that was found
    except OSError as error:
        for one in sockets:
            one.close()
        hint = " Choose another --port, or 0 for any that is free." if error.errno == errno.EADDRINUSE else ""
        raise ServerOptionError(
            f"can't listen on {host}:{port}: {os.strerror(error.errno or errno.EINVAL)}.{hint}"
        ) from None
    return sockets


def url(one: socket.socket) -> str:
    """The address of a listening socket, for people."""
    address, port, *_ = one.getsockname()
    shown = f"[{address}]" if one.family == socket.AF_INET6 else address
    return f"http://{shown}:{port}"


def is_loopback_name(authority: str) -> bool:
    """Returns whether a host, with its port or without, is a name or an address of this machine
    alone."""
    try:
        host = urlsplit(f"//{authority}").hostname or ""
        return host == "localhost" or host.endswith(".localhost") or _is_loopback(host)
    except ValueError:
        return False


def _is_loopback(address: str) -> bool:
    return ipaddress.ip_address(address.partition("%")[0]).is_loopback


def _bound(family: int, address: str, port: int) -> socket.socket:
    one = socket.create_server((address, port), family=family, backlog=BACKLOG)
    # Accepted connections inherit these. A machine that dies in mid-request sends no end.
    one.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for option, value in ((socket.TCP_KEEPIDLE, 60), (socket.TCP_KEEPINTVL, 10), (socket.TCP_KEEPCNT, 6)):
        one.setsockopt(socket.IPPROTO_TCP, option, value)
    # The body of an answer would wait for the client to acknowledge its head: 40 ms.
    one.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    one.setblocking(False)
    return one

"""Accepts the connections of a server with TLS, and bounds how many have no TLS yet.

- Such connections are no requests and need no token: without a bound they take all descriptors.
- The oldest gives way to the next one: an honest client is done within milliseconds.
- One that comes to speak TLS counts as a connection from then on (`connection_limit`).
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import logging
import socket
import ssl
from collections.abc import Callable, Sequence
from typing import Final

_HANDSHAKE_TIMEOUT_S: Final = 10.0
_PAUSE_S: Final = 1.0  # where there are no descriptors
_LOGGER: Final = logging.getLogger("guerdon.serve")
_OF_THE_CLIENT: Final = frozenset((errno.ECONNABORTED, errno.EPROTO, errno.ECONNRESET))


class TlsConnections:
    """The connections that have no TLS yet; all of it on one event loop.

    Args:
        context: Of the server.
        protocol: What a connection speaks then.
        most: Without TLS at once.
    """

    def __init__(self, context: ssl.SSLContext, protocol: Callable[[], asyncio.Protocol], most: int) -> None:
        self._context = context
        self._protocol = protocol
        self._most = most
        # Oldest first.
        self._handshakes: dict[asyncio.Task[None], None] = {}
        self._accepting: list[asyncio.Task[None]] = []

    def start(self, sockets: Sequence[socket.socket]) -> None:
        """Accepts what comes to these listening sockets."""
        self._accepting += [asyncio.ensure_future(self._accept(one)) for one in sockets]

    async def stop(self) -> None:
        """Accepts no more, and ends the connections that have no TLS yet."""
        tasks = [*self._accepting, *self._handshakes]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _accept(self, listening: socket.socket) -> None:
        loop = asyncio.get_running_loop()
        while True:
            try:
                accepted, _ = await loop.sock_accept(listening)
            except OSError as error:
                if error.errno not in _OF_THE_CLIENT:
                    _LOGGER.warning("guerdon: no connection can be accepted: %s", error.strerror)
                    await asyncio.sleep(_PAUSE_S)
                continue
            while len(self._handshakes) >= self._most:
                oldest = next(iter(self._handshakes))
                del self._handshakes[oldest]  # its callback comes turns later
                oldest.cancel()
            handshake = asyncio.ensure_future(self._shake_hands(accepted))
            self._handshakes[handshake] = None
            handshake.add_done_callback(self._forget)
            await asyncio.sleep(0)  # where many wait, accepting alone never suspends

    def _forget(self, handshake: asyncio.Task[None]) -> None:
        self._handshakes.pop(handshake, None)

    async def _shake_hands(self, accepted: socket.socket) -> None:
        # Whatever it did instead is its own affair: ssl.SSLError is an OSError, too.
        with contextlib.suppress(OSError):
            await asyncio.get_running_loop().connect_accepted_socket(
                self._protocol, accepted, ssl=self._context, ssl_handshake_timeout=_HANDSHAKE_TIMEOUT_S
            )

"""How many connections are open at once: no more than there are descriptors for.

- Each may need five: its own, and those of the batch that its request becomes.
- One too many takes the place of one that has brought no request for a second or more, or else of
  the one whose last answer is oldest; where there is none, it is answered by 503 with
  ``Retry-After`` before it has sent anything.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import resource
from typing import Any, Final

from uvicorn.protocols.http.h11_impl import H11Protocol

ACCEPTED_AT_ONCE: Final = 64
"""Connections that are accepted in one turn of the loop, before any of them is looked at."""

_OF_ONE: Final = 5
_OF_A_WORKER: Final = 4
_SPARE: Final = 64  # journals, connections to judges
_MOST_REFUSED: Final = 32  # that are told so just now; others are closed at once
_FEWEST: Final = 4
_SILENT_S: Final = 1.0
_SHARE_WITHOUT_TLS: Final = 8
_MOST_WITHOUT_TLS: Final = 512
_WITHOUT_LIMIT: Final = 1 << 20
_LINGER_S: Final = 1.0
_REFUSAL: Final = (
    b"HTTP/1.1 503 Service Unavailable\r\nContent-Type: application/json\r\nContent-Length: %d\r\n"
    b"Retry-After: 1\r\nConnection: close\r\n\r\n%s"
)
_REASON: Final = (
    b'{"error":"this server has all the connections that its descriptors allow (ulimit -n): ask another one."}'
)


class ConnectionLimit:
    """The most connections of a server; all of it on one event loop.

    Attributes:
        most: Open at once.
        most_without_tls: Of a server with TLS: those beside them that have none yet.
        refused: Open still, to be told so.
    """

    def __init__(self) -> None:
        self.most = _WITHOUT_LIMIT
        self.most_without_tls = 0
        self.refused = 0
        # Those that had brought no request when they were looked at, oldest first.
        self._silent: dict[_BoundedProtocol, None] = {}
        # Those that have been answered: the request, and when; the oldest answer first.
        self._answered: dict[_BoundedProtocol, tuple[object, float]] = {}

    def add(self, connection: _BoundedProtocol) -> None:
        """A connection has come, and no request with it yet."""
        asyncio.get_running_loop().call_later(_SILENT_S, self._look_at, connection)

    def _look_at(self, connection: _BoundedProtocol) -> None:
        # By a timer: what came while the loop was held up has been read before it.
        if connection.cycle is None and not connection.transport.is_closing():
            self._silent[connection] = None

    def drop(self, connection: _BoundedProtocol) -> None:
        """A connection has ended."""
        self._silent.pop(connection, None)
        self._answered.pop(connection, None)

    def answered(self, connection: _BoundedProtocol, cycle: object) -> None:
        """A connection's request has been answered."""
        self._answered.pop(connection, None)
        self._answered[connection] = cycle, asyncio.get_running_loop().time()

    def make_room(self) -> bool:
        """Ends a connection that is waited for in vain, if there is one."""
        return self._end_silent() or self._end_idle()

    def _end_idle(self) -> bool:
        latest = asyncio.get_running_loop().time() - _SILENT_S
        while self._answered:
            oldest, (cycle, since) = next(iter(self._answered.items()))
            if since > latest:
                return False
            del self._answered[oldest]
            # A busy one comes back with its next answer; one that is not read has its own timeout.
            if oldest.cycle is cycle and not oldest.transport.get_write_buffer_size():
                oldest.transport.abort()
                return True
        return False

    def _end_silent(self) -> bool:
        while self._silent:
            oldest = next(iter(self._silent))
            del self._silent[oldest]
            if oldest.cycle is None:
                oldest.transport.abort()
                return True
        return False

    def measure(self, workers: int, *, tls: bool) -> None:
        """Raises the soft limit of descriptors to the hard one, and counts what is left.

        Workers that run already keep the limit that they began with.
        """
        soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
        wanted = max(soft, _WITHOUT_LIMIT) if hard == resource.RLIM_INFINITY else hard
        with contextlib.suppress(OSError, ValueError):
            resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
            soft = wanted
        used = len(os.listdir("/proc/self/fd"))
        left = soft - used - ACCEPTED_AT_ONCE - _SPARE - _OF_A_WORKER * workers
        if tls:
            self.most_without_tls = min(max(left // _SHARE_WITHOUT_TLS, _FEWEST), _MOST_WITHOUT_TLS)
        self.most = max((left - self.most_without_tls - _MOST_REFUSED) // _OF_ONE, _FEWEST)

    def protocol(self, **options: Any) -> asyncio.Protocol:
        """What uvicorn makes a connection of."""
        return _BoundedProtocol(self, **options)


class _BoundedProtocol(H11Protocol):
    """HTTP on one connection, or a refusal of it. httptools would have no bound on headers."""

    def __init__(self, limit: ConnectionLimit, **options: Any) -> None:
        super().__init__(**options)
        self._limit = limit

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        if len(self.connections) < self._limit.most or self._limit.make_room():
            super().connection_made(transport)
            self._limit.add(self)
            return
        transport.write(_REFUSAL % (len(_REASON), _REASON))
        if self._limit.refused >= _MOST_REFUSED:
            transport.abort()
            return
        if transport.can_write_eof():
            transport.write_eof()
        transport.set_protocol(_RefusedConnection(transport, self._limit))

    def on_response_complete(self) -> None:
        self._limit.answered(self, self.cycle)
        super().on_response_complete()

    def connection_lost(self, exc: Exception | None) -> None:
        if self.transport is not None:  # None: it was refused
            self._limit.drop(self)
            super().connection_lost(exc)


class _RefusedConnection(asyncio.Protocol):
    """Reads what still comes for a moment: else the operating system may drop the answer."""

    def __init__(self, transport: asyncio.Transport, limit: ConnectionLimit) -> None:
        self._transport = transport
        self._limit = limit
        self._timer = asyncio.get_running_loop().call_later(_LINGER_S, transport.abort)
        limit.refused += 1

    def eof_received(self) -> None:
        self._transport.close()

    def connection_lost(self, exc: Exception | None) -> None:
        self._timer.cancel()
        self._limit.refused -= 1

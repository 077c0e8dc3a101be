"""Closes connections that bring no request, and those that don't read their answer.

- Idle: no whole request head within `idle_timeout`.
- Unread: the answer waits for its client for longer than `body_timeout`; TCP alone would wait for
  ever, as the client's system acknowledges that it is alive.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any


class ConnectionTimeouts:
    """The timeouts of one server's connections.

    Args:
        idle_timeout, body_timeout: Seconds.
        unread: Called with the path of a request whose answer was not read.
    """

    def __init__(self, idle_timeout: float, body_timeout: float, unread: Callable[[str], object]) -> None:
        self._idle_timeout = idle_timeout
        self._body_timeout = body_timeout
        self._unread = unread
        # Of each connection that waits for a request: the request before it, and since when.
        self._idle: dict[Any, tuple[object, float]] = {}
        self._full: dict[Any, float] = {}  # since when an answer waits

    def look(self, connections: Iterable[Any], now: float) -> None:
        """Closes what has had its time; it is called about once a second."""
        idle: dict[Any, tuple[object, float]] = {}
        full: dict[Any, float] = {}
        for connection in list(connections):
            cycle = getattr(connection, "cycle", None)
            if connection.flow.write_paused:
                full[connection] = self._full.get(connection, now)
                if now - full[connection] > self._body_timeout:
                    self._abort_unread(connection)
            elif cycle is None or cycle.response_complete:
                before, since = self._idle.get(connection, (cycle, now))
                idle[connection] = cycle, since if before is cycle else now
                if now - idle[connection][1] > self._idle_timeout:
                    connection.transport.abort()
        self._idle, self._full = idle, full

    def expire(self, connections: Iterable[Any]) -> None:
        """Closes those whose answer waits for its client, whatever time they have had."""
        for connection in list(connections):
            if connection.flow.write_paused:
                self._abort_unread(connection)

    def _abort_unread(self, connection: Any) -> None:
        if not connection.transport.is_closing():
            self._unread(connection.cycle.scope["path"])
            connection.transport.abort()

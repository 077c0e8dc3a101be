"""Closes connections that bring no request, and those that don't read their answer.

- New: no request that may come in, by its token, within `head_timeout` of the connection's start,
  whatever else came: who has no token keeps no connection from others.
- Idle: after one, no whole request head within `idle_timeout`.
- Unread: the answer waits for its client for longer than `body_timeout`; TCP alone would wait for
  ever, as the client's system acknowledges that it is alive.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from guerdon._serve.auth import HAS_TOKEN


class ConnectionTimeouts:
    """The timeouts of one server's connections.

    Args:
        head_timeout: Seconds until a request's head must have come.
        idle_timeout: Seconds that a connection may wait for its next request.
        body_timeout: Seconds that an answer may wait for its client to read it.
        unread: Called with the path of a request whose answer was not read.
    """

    def __init__(
        self, head_timeout: float, idle_timeout: float, body_timeout: float, unread: Callable[[str], object]
    ) -> None:
        self._head_timeout = head_timeout
        self._idle_timeout = idle_timeout
        self._body_timeout = body_timeout
        self._unread = unread
        # Of each connection: since when it is open; None once a request of it might come in.
        self._new: dict[Any, float | None] = {}
        # Of each connection that waits for a request: the request before it, and since when.
        self._idle: dict[Any, tuple[object, float]] = {}
        self._full: dict[Any, float] = {}  # since when an answer waits

    def look(self, connections: Iterable[Any], now: float) -> None:
        """Closes what has had its time; it is called about once a second."""
        new: dict[Any, float | None] = {}
        idle: dict[Any, tuple[object, float]] = {}
        full: dict[Any, float] = {}
        for connection in list(connections):
            cycle = getattr(connection, "cycle", None)
            opened = self._new.get(connection, now)
            opened = new[connection] = None if _has_token(cycle) else opened
            if connection.flow.write_paused:
                full[connection] = self._full.get(connection, now)
                if now - full[connection] > self._body_timeout:
                    self._abort_unread(connection)
            elif cycle is None or cycle.response_complete:
                before, since = self._idle.get(connection, (cycle, now))
                idle[connection] = cycle, since if before is cycle else now
                late = now - idle[connection][1] > self._idle_timeout
                if late or (opened is not None and now - opened > self._head_timeout):
                    connection.transport.abort()
        self._new, self._idle, self._full = new, idle, full

    def expire(self, connections: Iterable[Any]) -> None:
        """Closes those whose answer waits for its client, whatever time they have had."""
        for connection in list(connections):
            if connection.flow.write_paused:
                self._abort_unread(connection)

    def _abort_unread(self, connection: Any) -> None:
        if not connection.transport.is_closing():
            self._unread(connection.cycle.scope["path"])
            connection.transport.abort()


def _has_token(cycle: Any) -> bool:
    return cycle is not None and bool(cycle.scope.get(HAS_TOKEN))

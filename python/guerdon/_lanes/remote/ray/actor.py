"""The actor on a node: it holds the agent, and carries messages between it and the driver.

- It imports nothing of guerdon before the driver has seen the node's versions: the class is sent by
  value, so that a node without guerdon can report that.
- Messages come in numbered; a gap ends the session, and so does a driver that is silent
  (`PATIENCE_S`): its calls are worth nothing then.
- One session at a time; `open` ends the one before. That one is over is answered, not raised: Ray
  would log it.
"""

from __future__ import annotations

import threading
import time
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterator

    from guerdon._lanes.remote.agent import NodeAgent
    from guerdon._native import Link

PATIENCE_S = 60.0
"""Longest silence of a driver."""
_LINGER_S = 0.01
"""Time that reports on calls wait for more while the workers have enough to do: each message
costs both sides time."""
_ENOUGH = 64 << 10
_OVER = "its session is over"


class AgentActor:
    """One node's agent; each method is called through Ray."""

    def __init__(self) -> None:
        self._agent: NodeAgent | None = None
        self._link: Link | None = None
        self._watching = False
        self._session = 0
        self._next = 0
        # Time of the driver's last message; written by `deliver`, read by the watch.
        self._heard = time.monotonic()

    def versions(self, source: str) -> dict[str, str]:
        """Returns the installed versions by running `versions.installed`, whose module's text is
        `source`."""
        namespace: dict[str, Any] = {"__name__": "versions"}
        exec(compile(source, "versions.py", "exec"), namespace)
        found: dict[str, str] = namespace["installed"]()
        return found

    def open(self, session: int, data: bytes, workers: int, folder: str, timeout: float) -> int:
        """Begins a session with a driver; the process id.

        Args:
            session: Its number.
            data: What `guerdon._lanes.remote.engine_setup.pack` made.
            workers: How many.
            folder: The driver's working directory, which is this one's where it exists.
            timeout: Seconds that the functions may take to be ready.

        Raises:
            GuerdonError: The functions can't run here.
        """
        import os

        from guerdon._lanes.remote.agent import NodeAgent
        from guerdon._lanes.remote.ray.functions_check import check_functions

        self._end()
        if not self._watching:
            self._watching = True
            threading.Thread(target=self._watch, name="guerdon-watch", daemon=True).start()
        if os.path.isdir(folder):
            os.chdir(folder)
        self._agent = NodeAgent(data, workers=workers)
        self._agent.check()
        check_functions(self._agent, timeout)
        self._link = self._agent.connect("driver")
        self._session, self._next, self._heard = session, 0, time.monotonic()
        return os.getpid()

    def deliver(self, session: int, number: int, *pieces: bytes) -> str | None:
        """Takes a message of the driver; one without pieces is a sign of life. Returns the reason
        if the session is over."""
        link = self._of(session)
        self._heard = time.monotonic()
        if link is None:
            return _OVER
        if number != self._next:
            self._end()
            return f"message {number} came in place of {self._next}"
        self._next += 1
        if pieces:
            link.deliver(*pieces)
        return None

    def stream(self, session: int) -> Iterator[Any]:
        """Yields the messages for the driver, and last a text with the reason for the end of the
        session."""
        over = _OVER
        while (link := self._of(session)) is not None:
            try:
                message = link.take(PATIENCE_S, linger=_LINGER_S, enough=_ENOUGH)
            except ConnectionError as error:
                over = str(error)
                break
            if message is not None:
                yield message
        yield over

    def close(self) -> None:
        """Ends the agent and its workers."""
        self._end()

    def _of(self, session: int) -> Link | None:
        return self._link if session == self._session else None

    def _end(self) -> None:
        agent, link, self._agent, self._link = self._agent, self._link, None, None
        if link is not None:
            link.lost("the session is over")
        if agent is not None:
            agent.close()

    def _watch(self) -> None:
        """Ends the work of a driver that is gone although Ray has not noticed."""
        while True:
            time.sleep(PATIENCE_S / 4)
            if self._link is not None and time.monotonic() - self._heard > PATIENCE_S:
                self._end()

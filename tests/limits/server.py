"""A server that answers so many requests in any window of so many seconds, and refuses the others
with 429."""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any


class Window:
    """The requests that a sliding window has seen.

    Attributes:
        answered: When each request that was let through came.
        refused: When each that was not came.
    """

    def __init__(self, most: int, seconds: float) -> None:
        self.most, self.seconds = most, seconds
        self.answered: list[float] = []
        self.refused: list[float] = []
        self._taken: deque[float] = deque()
        self._lock = threading.Lock()

    def ask(self) -> float | None:
        """None if the request is let through, else the seconds until one would be."""
        with self._lock:
            now = time.monotonic()
            while self._taken and self._taken[0] + self.seconds <= now:
                self._taken.popleft()
            if len(self._taken) < self.most:
                self._taken.append(now)
                self.answered.append(now)
                return None
            self.refused.append(now)
            return self._taken[0] + self.seconds - now

    def after(self, windows: float) -> tuple[int, int, float]:
        """Answers, refusals and seconds from so many windows after the first request to the last
        one."""
        every = sorted([*self.answered, *self.refused])
        start, end = every[0] + windows * self.seconds, every[-1]
        late = [sum(start < at <= end for at in times) for times in (self.answered, self.refused)]
        return late[0], late[1], end - start


@contextmanager
def serving(window: Window) -> Iterator[str]:
    """Its address."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            later = window.ask()
            self.send_response(200 if later is None else 429)
            if later is not None:
                self.send_header("Retry-After", f"{later:.3f}")
            self.send_header("Content-Length", "0")
            self.end_headers()

        def log_message(self, *_: Any) -> None:
            """Says nothing."""

    class Server(ThreadingHTTPServer):
        daemon_threads = True
        request_queue_size = 128

    with Server(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05})
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_address[1]}/"
        finally:
            server.shutdown()
            thread.join()

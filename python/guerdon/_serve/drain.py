"""The end of the server: no new requests, those in flight finish or time out.

- ready → draining (SIGTERM): new requests get 503, as does readiness; those in flight go on.
- draining → expired (after `drain_timeout`): what is still in flight ends with 503.
"""

from __future__ import annotations

import asyncio
from typing import Any

from guerdon._serve.errors import RequestError


class Drain:
    """Where the server is on its way; all of it on one event loop.

    Attributes:
        draining: It takes no new requests.
        expired: Those in flight have had their time.
    """

    def __init__(self) -> None:
        self.draining = False
        self.expired = False
        self._work: set[asyncio.Future[Any]] = set()

    def begin(self) -> None:
        """Takes no new requests from now on."""
        self.draining = True

    def expire(self) -> None:
        """Ends what is in flight."""
        self.draining = self.expired = True
        for work in list(self._work):
            work.cancel()

    def add(self, work: asyncio.Future[Any]) -> None:
        """Ends `work` with the others, if it is not done by then; at once after that."""
        self._work.add(work)
        work.add_done_callback(self._work.discard)
        if self.expired:
            work.cancel()

    def check(self) -> None:
        """Raises `RequestError` (503) once new requests are not taken any more."""
        if self.draining:
            raise stopping()


def stopping() -> RequestError:
    """What a request gets that the server's end leaves without an answer."""
    return RequestError(503, "this server is shutting down: ask another one.", retry_after=1.0)

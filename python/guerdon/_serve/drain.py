"""Start and end of the server: when requests are taken, and what becomes of those in flight.

- starting → ready (its functions can run): before, requests get 503.
- ready → draining (SIGTERM): new requests get 503, as does readiness; those in flight go on.
- draining → expired (after `drain_timeout`): what is still in flight ends with 503.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Coroutine
from typing import Any, TypeVar

from guerdon._serve.errors import ClientGoneError, RequestError

T = TypeVar("T")


class Drain:
    """State of the server's shutdown; all of it on one event loop.

    Attributes:
        starting: It takes no requests yet.
        draining: It takes no new requests.
        expired: Those in flight have had their time.
    """

    def __init__(self) -> None:
        self.starting = False
        self.draining = False
        self.expired = False
        self._work: set[asyncio.Future[Any]] = set()

    def begin(self) -> None:
        """Takes no new requests from now on."""
        self.draining = True

    def expire(self) -> None:
        """Ends the requests in flight."""
        self.draining = self.expired = True
        for work in list(self._work):
            work.cancel()

    def add(self, work: asyncio.Future[Any]) -> None:
        """Ends `work` with the others, if it is not done by then; at once after that."""
        self._work.add(work)
        work.add_done_callback(self._work.discard)
        if self.expired:
            work.cancel()

    async def run(self, work: Coroutine[Any, Any, T], gone: Awaitable[object] | None = None) -> T:
        """The result of `work`, which is cancelled with its caller; `gone` ends with the client.

        Raises:
            ClientGoneError: `gone` has ended first.
            RequestError: The server ends first (503).
        """
        task = asyncio.ensure_future(work)
        both = [task] if gone is None else [task, asyncio.ensure_future(gone)]
        self.add(task)
        try:
            await asyncio.wait(both, return_when=asyncio.FIRST_COMPLETED)
            if task.done() and not task.cancelled():
                return task.result()
            if self.expired:
                raise stopping()
            raise ClientGoneError
        finally:
            for each in both:
                each.cancel()
            await asyncio.gather(*both, return_exceptions=True)

    def check(self) -> None:
        """Raises `RequestError` (503) before requests are taken, and once they are not any more."""
        if self.draining:
            raise stopping()
        if self.starting:
            raise RequestError(503, "this server is starting: ask another one, or again.", retry_after=1.0)


def stopping() -> RequestError:
    """Returns the answer to a request that the server's end leaves unscored."""
    return RequestError(503, "this server is shutting down: ask another one.", retry_after=1.0)

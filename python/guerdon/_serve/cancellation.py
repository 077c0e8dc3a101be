"""Work that somebody waits for: it is cancelled when its client goes, or when the server ends."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any, TypeVar

from starlette.types import Receive

from guerdon._serve.drain import Drain, stopping
from guerdon._serve.errors import ClientGoneError

T = TypeVar("T")


async def run_while_wanted(work: Coroutine[Any, Any, T], receive: Receive, drain: Drain) -> T:
    """The result of `work`; `receive` is that of a request whose body has been read.

    Raises:
        ClientGoneError: Its client has closed the connection.
        RequestError: The server ends first (503).
    """
    task, gone = asyncio.ensure_future(work), asyncio.ensure_future(_gone(receive))
    drain.add(task)
    try:
        await asyncio.wait((task, gone), return_when=asyncio.FIRST_COMPLETED)
        if task.done() and not task.cancelled():
            return task.result()
        if drain.expired:
            raise stopping()
        raise ClientGoneError
    finally:
        task.cancel()
        gone.cancel()
        await asyncio.gather(task, gone, return_exceptions=True)


async def _gone(receive: Receive) -> None:
    """Waits until the client has gone."""
    while (await receive())["type"] != "http.disconnect":
        pass

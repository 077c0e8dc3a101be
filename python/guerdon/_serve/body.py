"""Reads a request's body, within bounds that are kept while it comes.

- A body that is too long is refused before it is read, or as soon as its length is known. A body
  for which other requests leave no room is refused when the room ends.
- A body that is not complete by the end of the server's drain is refused.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable

from starlette.types import Receive

from guerdon._serve.drain import Drain, stopping
from guerdon._serve.errors import ClientGoneError, RequestError


async def read_body(
    receive: Receive,
    headers: Iterable[tuple[bytes, bytes]],
    take: Callable[[int], None],
    drain: Drain,
    *,
    most: int,
) -> bytearray:
    """The whole body; `take` is asked for permits of its bytes.

    Raises:
        RequestError: It is too long, or too much at present; or the server ends first.
        ClientGoneError: The connection was closed before its end.
    """
    if _content_length(headers) > most:
        raise _too_long(most)
    body = bytearray()
    reading = asyncio.ensure_future(_read_into(body, receive, take, most))
    drain.add(reading)
    try:
        await asyncio.wait((reading,))
        if reading.cancelled():
            raise stopping()
        reading.result()
        return body
    finally:
        if not reading.done():
            reading.cancel()
            await asyncio.wait((reading,))


async def _read_into(body: bytearray, receive: Receive, take: Callable[[int], None], most: int) -> None:
    while True:
        message = await receive()
        if message["type"] == "http.disconnect":
            raise ClientGoneError
        piece = message.get("body", b"")
        take(len(piece))
        body += piece
        if len(body) > most:
            raise _too_long(most)
        if not message.get("more_body", False):
            return


def _too_long(most: int) -> RequestError:
    return RequestError(413, f"the body is longer than {most >> 20} MB: send fewer samples a request.")


def _content_length(headers: Iterable[tuple[bytes, bytes]]) -> int:
    for name, value in headers:
        if name == b"content-length":
            return int(value) if value.isdigit() and len(value) < 20 else 0
    return 0

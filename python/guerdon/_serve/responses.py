"""Responses of the server: JSON, and refusals, which may come before the request has been read."""

from __future__ import annotations

import asyncio
import json
import math
from typing import Final

from starlette.responses import Response
from starlette.types import Message, Receive, Scope, Send

from guerdon._serve.errors import RequestError

# A client that is told no while it sends is read for a while: otherwise the operating system may
# drop the answer together with the unread bytes.
_LINGER: Final = (2.0, 64 << 20)  # seconds, bytes
# Most bodies are there already: reading them keeps the connection.
_AT_ONCE: Final = (0.05, 1 << 20)


def json_response(content: object, status: int = 200) -> Response:
    """JSON in ASCII: half surrogate pairs stay as they came."""
    body = json.dumps(content, allow_nan=False, separators=(",", ":")).encode()
    return Response(body, status, media_type="application/json")


def error_response(error: RequestError) -> Response:
    """A refusal, for clients and for people."""
    response = json_response({"error": error.reason}, error.status)
    if error.retry_after is not None:
        response.headers["Retry-After"] = str(math.ceil(error.retry_after))
    if error.status == 401:
        response.headers["WWW-Authenticate"] = "Bearer"
    return response


async def answer_early(error: RequestError, scope: Scope, receive: Receive, send: Send) -> None:
    """Refuses a request whose body has not been read to its end."""
    response = error_response(error)
    if (b"expect", b"100-continue") in scope["headers"]:  # reading would ask for the body
        await _send(response, send, close=True)
        return
    if await _read_rest(receive, *_AT_ONCE):
        await _send(response, send, close=False)
        return
    await _send(response, send, close=True, more=True)
    await _read_rest(receive, *_LINGER)
    await send({"type": "http.response.body", "body": b"", "more_body": False})


async def _send(response: Response, send: Send, *, close: bool, more: bool = False) -> None:
    headers = [*response.raw_headers, (b"connection", b"close")] if close else response.raw_headers
    await send({"type": "http.response.start", "status": response.status_code, "headers": headers})
    await send({"type": "http.response.body", "body": response.body, "more_body": more})


async def _read_rest(receive: Receive, seconds: float, most: int) -> bool:
    """Reads the rest of a body; whether that was its end."""
    deadline = asyncio.get_running_loop().time() + seconds
    while most > 0:
        left = deadline - asyncio.get_running_loop().time()
        try:
            message: Message = await asyncio.wait_for(receive(), max(left, 0.0))
        except TimeoutError:
            return False
        if message["type"] == "http.disconnect" or not message.get("more_body", False):
            return True
        most -= len(message.get("body", b""))
    return False

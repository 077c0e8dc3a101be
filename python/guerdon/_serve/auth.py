"""Lets requests in that bring a token: ``Authorization: Bearer …``, or ``/t/<token>/…`` as the path
for clients that can't send a header.

- The token is taken out of the path before anything else sees it, so that nothing can log it.
- Liveness and readiness need none; everything else does, where there is one at all.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final
from urllib.parse import unquote

from starlette.types import ASGIApp, Receive, Scope, Send

from guerdon._serve.errors import RequestError
from guerdon._serve.responses import answer_early
from guerdon._serve.tokens import is_known

OPEN_PATHS: Final = frozenset(("/health", "/ready"))

HAS_TOKEN: Final = "guerdon.has_token"
"""Of a scope: whether its request brings a token, or none is asked for."""

_PREFIX: Final = "/t/"
_SCHEME: Final = b"bearer "


class TokenAuth:
    """An ASGI application that passes on what may come in.

    Args:
        app: The application behind it.
        tokens: Those that let in; none: everything may.
        refused: Called for each request that may not.
    """

    def __init__(self, app: ASGIApp, tokens: Sequence[bytes], refused: Callable[[], object]) -> None:
        self._app = app
        self._tokens = tuple(tokens)
        self._refused = refused

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http":
            given = _take_from_path(scope) or _from_header(scope)
            scope[HAS_TOKEN] = not self._tokens or is_known(given, self._tokens)
            if not scope[HAS_TOKEN] and scope["path"] not in OPEN_PATHS:
                self._refused()
                error = RequestError(
                    401, "send the token as `Authorization: Bearer ...`, or in the path, /t/<token>/..."
                )
                await answer_early(error, scope, receive, send)
                return
        await self._app(scope, receive, send)


def _take_from_path(scope: Scope) -> bytes:
    """The token of a path ``/t/<token>/rest``, which becomes ``/rest``; empty if there is none."""
    path: str = scope["path"]
    if not path.startswith(_PREFIX):
        return b""
    token, slash, rest = path[len(_PREFIX) :].partition("/")
    scope["path"] = slash + rest or "/"
    scope["raw_path"] = scope["path"].encode("utf-8", "replace")
    return unquote(token).encode("utf-8", "replace")


def _from_header(scope: Scope) -> bytes:
    for name, value in scope["headers"]:
        if name == b"authorization" and value[: len(_SCHEME)].lower() == _SCHEME:
            return bytes(value[len(_SCHEME) :].strip())
    return b""

"""Lets requests in that bring a token: ``Authorization: Bearer …``, or ``/t/<token>/…`` as the path
for clients that can't send a header.

- The token is taken out of the path before anything else sees it, so that nothing can log it.
- Liveness and readiness need none; everything else does, where there is one at all.
- Tokens are in a file or the environment, never on the command line, which every process of the
  machine can read.
- Without any, only what is asked of a name of this machine is answered, and nothing that another
  site's page sends: a browser on this machine would pass on what any page says.
"""

from __future__ import annotations

import hmac
import os
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Final
from urllib.parse import unquote

from starlette.types import ASGIApp, Receive, Scope, Send

from guerdon._serve.address import is_loopback_name
from guerdon._serve.errors import RequestError, ServerOptionError
from guerdon._serve.responses import answer_early

VARIABLE: Final = "GUERDON_SERVE_TOKEN"

OPEN_PATHS: Final = frozenset(("/health", "/ready"))

HAS_TOKEN: Final = "guerdon.has_token"
"""Returns for a scope: whether its request brings a token, or none is asked for."""

# Characters that can be in a path and in a header unchanged.
_TOKEN: Final = re.compile(r"[A-Za-z0-9._~+=-]{16,512}")
_LONGEST_FILE: Final = 64 << 10
_PREFIX: Final = "/t/"
_SCHEME: Final = b"bearer "


def read_tokens(path: str | None, environ: Mapping[str, str] = os.environ) -> tuple[bytes, ...]:
    """The tokens of the file, one a line, else the one of the environment; none without either.

    Raises:
        ServerOptionError: The file can't be read or has none, or one of them is not a token.
    """
    if path is not None:
        try:
            with open(path, encoding="utf-8", errors="replace") as file:
                text = file.read(_LONGEST_FILE + 1)
        except OSError as error:
            raise ServerOptionError(f"--token-file {path!r} can't be read: {error.strerror}.") from None
        where = f"--token-file {path!r}"
        if len(text) > _LONGEST_FILE:
            raise ServerOptionError(f"{where} is longer than {_LONGEST_FILE >> 10} KB: write one token a line into it.")
        lines = text.split()
        if not lines:
            raise ServerOptionError(f"{where} is empty: write one token a line into it.")
    else:
        lines = [environ[VARIABLE].strip()] if environ.get(VARIABLE, "").strip() else []
        where = VARIABLE
    for place, line in enumerate(lines, 1):
        if not _TOKEN.fullmatch(line):
            raise ServerOptionError(
                f"{where}: token {place} can't be used: expected 16 to 512 letters, digits and ._~+=-, as "
                "`openssl rand -hex 32` makes them."
            )
    return tuple(line.encode() for line in lines)


class TokenAuth:
    """An ASGI application that passes on authorized requests.

    Args:
        app: The application behind it.
        tokens: Those that let in; none: everything may.
        refused: Called with the status for each request that may not.
    """

    def __init__(self, app: ASGIApp, tokens: Sequence[bytes], refused: Callable[[str], object]) -> None:
        self._app = app
        self._tokens = tuple(tokens)
        self._refused = refused

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http":
            if not self._tokens and scope["path"] not in OPEN_PATHS and _is_from_elsewhere(scope):
                self._refused("403")
                error = RequestError(
                    403, "without a token this server answers its own machine alone, at localhost, and no web pages"
                )
                await answer_early(error, scope, receive, send)
                return
            given = _take_from_path(scope) or _from_header(scope)
            scope[HAS_TOKEN] = not self._tokens or _is_known(given, self._tokens)
            if not scope[HAS_TOKEN] and scope["path"] not in OPEN_PATHS:
                self._refused("401")
                error = RequestError(
                    401, "send the token as `Authorization: Bearer ...`, or in the path, /t/<token>/..."
                )
                await answer_early(error, scope, receive, send)
                return
        await self._app(scope, receive, send)


def _is_from_elsewhere(scope: Scope) -> bool:
    for name, value in scope["headers"]:
        authority = value.decode("latin-1")
        if name == b"origin":
            authority = authority.partition("://")[2] or authority
        if name in (b"host", b"origin") and not is_loopback_name(authority):
            return True
    return False


def _take_from_path(scope: Scope) -> bytes:
    """The token of a path ``/t/<token>/rest``, which becomes ``/rest``; empty without one."""
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


def _is_known(given: bytes, tokens: Sequence[bytes]) -> bool:
    """Returns whether it is one of them, in a time that tells nothing about them."""
    found = False
    for token in tokens:  # all of them, whichever fits
        found |= hmac.compare_digest(given, token)
    return found

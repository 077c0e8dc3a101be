"""The ASGI application: which path is answered by what."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from functools import partial
from typing import TYPE_CHECKING, Final

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route
from starlette.types import ASGIApp

from guerdon._serve import health
from guerdon._serve.auth import TokenAuth
from guerdon._serve.counters import OTHER, Counters
from guerdon._serve.drain import Drain
from guerdon._serve.endpoint import ProtocolEndpoint
from guerdon._serve.permits import Permits
from guerdon._serve.protocols.nemo_gym import NEMO_GYM
from guerdon._serve.protocols.openrlhf import OPENRLHF
from guerdon._serve.protocols.score import SCORE
from guerdon._serve.protocols.slime import SLIME
from guerdon._serve.responses import json_response
from guerdon._serve.settings import ServerSettings

if TYPE_CHECKING:
    from guerdon.dispatcher import Dispatcher

PROTOCOLS: Final = (SCORE, OPENRLHF, SLIME, NEMO_GYM)


def make_app(
    dispatcher: Dispatcher, settings: ServerSettings, drain: Drain, permits: Permits, counters: Counters
) -> ASGIApp:
    """The application in front of a dispatcher."""
    routes = [
        Route("/health", health.health),
        Route("/ready", health.ready(dispatcher, drain)),
        Route("/metrics", health.metrics(dispatcher, counters)),
        # Route for NeMo-Gym's agents before a rollout: there is nothing to prepare.
        Route("/seed_session", _nothing, methods=["POST"]),
    ]
    for protocol in PROTOCOLS:
        endpoint = ProtocolEndpoint(protocol, dispatcher, settings, permits, drain, counters)
        routes.append(Route(protocol.path, endpoint, methods=["POST"]))
    app = Starlette(routes=routes, exception_handlers={HTTPException: _refused(counters)})
    app.router.redirect_slashes = False
    return TokenAuth(app, settings.tokens, partial(counters.count, OTHER))


async def _nothing(request: Request) -> Response:
    return json_response({})


def _refused(counters: Counters) -> Callable[[Request, Exception], Awaitable[Response]]:
    """404 and 405, as JSON."""

    async def page(request: Request, error: Exception) -> Response:
        assert isinstance(error, HTTPException)
        counters.count(OTHER, str(error.status_code))
        allowed = (error.headers or {}).get("Allow", "POST")
        if error.status_code == 404:
            reason = f"there is no such path: POST to {', '.join(protocol.path for protocol in PROTOCOLS)}."
        else:
            reason = f"{error.detail}: use {'POST' if 'POST' in allowed else 'GET'}."
        response = json_response({"error": reason}, error.status_code)
        response.headers.update(error.headers or {})
        return response

    return page

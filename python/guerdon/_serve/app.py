"""The ASGI application: its routes, with health, readiness and metrics."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from functools import partial
from typing import TYPE_CHECKING, Final

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route
from starlette.types import ASGIApp

from guerdon._serve.auth import HAS_TOKEN, TokenAuth
from guerdon._serve.counters import CONTENT_TYPE, OTHER, Counters
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

Page = Callable[[Request], Awaitable[Response]]

PROTOCOLS: Final = (SCORE, OPENRLHF, SLIME, NEMO_GYM)


def make_app(
    dispatcher: Dispatcher, settings: ServerSettings, drain: Drain, permits: Permits, counters: Counters
) -> ASGIApp:
    """The application in front of a dispatcher."""
    routes = [
        Route("/health", _health),
        Route("/ready", _ready(dispatcher, drain)),
        Route("/metrics", _metrics(dispatcher, counters)),
        # Route for NeMo-Gym's agents before a rollout: there is nothing to prepare.
        Route("/seed_session", _nothing, methods=["POST"]),
    ]
    for protocol in PROTOCOLS:
        endpoint = ProtocolEndpoint(protocol, dispatcher, settings, permits, drain, counters)
        routes.append(Route(protocol.path, endpoint, methods=["POST"]))
    app = Starlette(routes=routes, exception_handlers={HTTPException: _refused(counters)})
    app.router.redirect_slashes = False
    return TokenAuth(app, settings.tokens, partial(counters.count, OTHER))


async def _health(request: Request) -> Response:
    """``/health``: 200 as long as the server answers at all."""
    return json_response({"status": "alive"})


def _ready(dispatcher: Dispatcher, drain: Drain) -> Page:
    """``/ready``: 200 once the functions can run and until the server is to end, 503 else; it names
    the functions to those with a token."""

    async def page(request: Request) -> Response:
        if drain.draining:
            return json_response({"status": "draining"}, 503)
        if drain.starting or dispatcher._engine.started is None:
            return json_response({"status": "starting"}, 503)
        functions = {"functions": list(dispatcher.names)} if request.scope[HAS_TOKEN] else {}
        return json_response({"status": "ready", **functions})

    return page


def _metrics(dispatcher: Dispatcher, counters: Counters) -> Page:
    """``/metrics``: the engine's and the server's, for Prometheus."""

    async def page(request: Request) -> Response:
        engine = dispatcher._engine.started
        text = "" if engine is None else await asyncio.to_thread(engine.metrics_text, False)
        return Response(text + counters.text(), headers={"Content-Type": CONTENT_TYPE})

    return page


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

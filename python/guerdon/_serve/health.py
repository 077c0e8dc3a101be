"""Health, readiness and metrics of the server."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING

from starlette.requests import Request
from starlette.responses import Response

from guerdon._serve.auth import HAS_TOKEN
from guerdon._serve.counters import CONTENT_TYPE, Counters
from guerdon._serve.drain import Drain
from guerdon._serve.responses import json_response

if TYPE_CHECKING:
    from guerdon.dispatcher import Dispatcher

Page = Callable[[Request], Awaitable[Response]]


async def health(request: Request) -> Response:
    """``/health``: 200 as long as the server answers at all."""
    return json_response({"status": "alive"})


def ready(dispatcher: Dispatcher, drain: Drain) -> Page:
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


def metrics(dispatcher: Dispatcher, counters: Counters) -> Page:
    """``/metrics``: the engine's and the server's, for Prometheus."""

    async def page(request: Request) -> Response:
        engine = dispatcher._engine.started
        text = "" if engine is None else await asyncio.to_thread(engine.metrics_text, False)
        return Response(text + counters.text(), headers={"Content-Type": CONTENT_TYPE})

    return page

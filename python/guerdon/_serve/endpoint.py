"""Answers the requests of one protocol: body, JSON, samples, permits, scores, answer."""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from starlette.datastructures import QueryParams
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from guerdon._serve.counters import Counters
from guerdon._serve.drain import Drain
from guerdon._serve.errors import ClientGoneError, RequestError
from guerdon._serve.json_body import bytes_of_values, read_body, read_json
from guerdon._serve.offload import is_big, run
from guerdon._serve.permits import Permits
from guerdon._serve.protocols.protocol import ClientProtocol
from guerdon._serve.responses import answer_early, error_response, json_response
from guerdon._serve.samples import Outcome, Request, score
from guerdon._serve.settings import ServerSettings

if TYPE_CHECKING:
    from guerdon.dispatcher import Dispatcher

Take = Callable[[int], None]

_LOGGER: Final = logging.getLogger("guerdon.serve")


@dataclass(eq=False)
class ProtocolEndpoint:
    """An ASGI application for the requests of one protocol.

    Attributes:
        protocol: Theirs.
        dispatcher: Scores their samples.
        settings: Bounds of bodies.
        permits: Permits, shared by all protocols.
        drain: Says when no more are taken.
        counters: Counts what is answered.
    """

    protocol: ClientProtocol
    dispatcher: Dispatcher
    settings: ServerSettings
    permits: Permits
    drain: Drain
    counters: Counters

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        path, count = self.protocol.path, self.counters.count
        try:
            with self.permits.take_bytes() as take:
                response = await self._response(scope, receive, take)
                if isinstance(response, Response):
                    count(path, str(response.status_code))
                    await response(scope, receive, send)
                    return
        except ClientGoneError:
            count(path, "gone")
            return
        count(path, str(response.status))
        await answer_early(response, scope, receive, send)

    async def _response(self, scope: Scope, receive: Receive, take: Take) -> Response | RequestError:
        """The response. A refusal stays a `RequestError` while the body is not read to its end."""
        is_read = False
        try:
            body = await self._body(scope, receive, take)
            is_read = True
            return await self._answer(scope, receive, body, take)
        except ClientGoneError:
            raise
        except RequestError as error:
            refusal = error
        except Exception as error:
            # The path of a protocol holds no token.
            _LOGGER.error("guerdon: a request to %s failed", self.protocol.path, exc_info=error)
            refusal = RequestError(500, "this server failed on the request: its log says why.")
        return error_response(refusal) if is_read else refusal

    async def _body(self, scope: Scope, receive: Receive, take: Take) -> bytearray:
        self.drain.check()
        kind = next((value for name, value in scope["headers"] if name == b"content-type"), b"")
        if kind.partition(b";")[0].strip().lower() != b"application/json":
            raise RequestError(415, "send JSON, with `Content-Type: application/json`.")
        coding = next((value for name, value in scope["headers"] if name == b"content-encoding"), b"identity")
        if coding.strip().lower() not in (b"identity", b""):
            # Some KB of it could be GB of JSON.
            raise RequestError(415, f"the body is coded ({coding.decode('latin-1'):.40}): send the JSON as it is.")
        return await read_body(receive, scope["headers"], take, self.drain, most=self.settings.max_body_bytes)

    async def _answer(self, scope: Scope, receive: Receive, body: bytearray, take: Take) -> Response:
        size = len(body)
        take(await run(size, bytes_of_values, body))
        fields, request = await run(size, self._read, body, QueryParams(scope["query_string"]))
        del body
        grouped = self.dispatcher._submitter.group_function
        if grouped is not None and not self.protocol.takes_groups:
            raise RequestError(
                400,
                f"reward function {grouped!r} works on whole groups, and {self.protocol.path} gets single samples: send "
                "whole groups to /score or /openrlhf, with num_generations.",
            )
        if grouped is not None and request.num_generations is None:
            raise RequestError(
                400,
                f"reward function {grouped!r} works on whole groups: say how many completions a prompt has, as "
                "num_generations in the body or in the address.",
            )
        with self.permits.take_samples(len(request)):
            work = score(self.dispatcher, request, big=is_big(size))
            outcomes = await self.drain.run(work, _gone(receive))
        return await run(size, self._write, fields, request, outcomes)

    def _read(self, body: bytearray, query: QueryParams) -> tuple[dict[str, Any], Request]:
        for name in query:
            if name not in self.protocol.options:
                raise RequestError(
                    400,
                    f"{name!a:.80} in the address: {self.protocol.path} knows {', '.join(self.protocol.options)}.",
                )
        fields = read_json(body)
        return fields, self.protocol.read(fields, query)

    def _write(self, fields: dict[str, Any], request: Request, outcomes: list[Outcome]) -> Response:
        return json_response(self.protocol.write(fields, request, outcomes))


async def _gone(receive: Receive) -> None:
    """Waits until the client has gone."""
    while (await receive())["type"] != "http.disconnect":
        pass

"""What the server itself fails on is answered, logged and counted."""

from __future__ import annotations

import asyncio
import errno
import json
import logging
from types import SimpleNamespace
from typing import Any

import pytest

from guerdon._serve.app import make_app
from guerdon._serve.counters import Counters
from guerdon._serve.drain import Drain
from guerdon._serve.permits import Permits
from guerdon._serve.settings import ServerSettings

REQUEST = {"completion": "a"}


class Failing:
    """A dispatcher whose scorer raises."""

    names = ("one",)
    _submitter = SimpleNamespace(group_function=None)

    def __init__(self, error: Exception) -> None:
        self._error = error
        self._sample_scorer = self

    async def result(self, *arguments: object) -> Any:
        raise self._error


async def ask(error: Exception, path: str) -> tuple[int, dict[str, str], Any, str]:
    """Status, headers and JSON of the answer, and the counters."""
    permits = Permits(8, 1 << 20)
    counters = Counters(permits)
    dispatcher: Any = Failing(error)
    app = make_app(dispatcher, ServerSettings(), Drain(), permits, counters)
    headers = [(b"content-type", b"application/json")]
    scope = {"type": "http", "method": "POST", "path": path, "query_string": b"", "headers": headers, "root_path": ""}
    sent: list[Any] = []
    bodies = [json.dumps(REQUEST).encode()]

    async def receive() -> Any:
        if not bodies:
            await asyncio.sleep(60)
        return {"type": "http.request", "body": bodies.pop(), "more_body": False}

    async def send(message: Any) -> None:
        sent.append(message)

    await app(scope, receive, send)
    found = {name.decode(): value.decode() for name, value in sent[0]["headers"]}
    return sent[0]["status"], found, json.loads(sent[1]["body"]), counters.text()


@pytest.mark.fault(
    "the server itself fails on a request",
    sees="500 with the reason; a traceback on stderr; counted",
)
def test_an_unexpected_error_is_logged_and_counted(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.ERROR, "guerdon.serve"):
        status, _, answer, counted = asyncio.run(ask(KeyError("odd"), "/t/secret-token-0123456789/score"))
    assert status == 500
    assert "its log says why" in answer["error"]
    assert 'guerdon_serve_requests_total{path="/score",status="500"} 1' in counted
    assert "a request to /score failed" in caplog.text
    assert "KeyError: 'odd'" in caplog.text
    assert "secret" not in caplog.text


@pytest.mark.fault(
    "the server has no descriptors left for a request", sees="503 with `Retry-After`; `http_reward` asks another server"
)
def test_without_descriptors_another_server_is_asked() -> None:
    status, headers, answer, counted = asyncio.run(ask(OSError(errno.EMFILE, "Too many open files"), "/score"))
    assert (status, headers["retry-after"]) == (503, "2")
    assert "Too many open files" in answer["error"]
    assert 'guerdon_serve_requests_total{path="/score",status="503"} 1' in counted
    assert asyncio.run(ask(OSError(errno.EIO, "odd"), "/score"))[0] == 500

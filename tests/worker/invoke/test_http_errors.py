"""What exceptions of HTTP clients tell: status, when to come back, tokens."""

from __future__ import annotations

import email.utils
import socket
import time
import urllib.error
from email.message import Message
from types import SimpleNamespace
from typing import Any

import pytest

from guerdon._worker.invoke.http_errors import BROKEN, UNREACHABLE, http_status_of, retry_after_of
from guerdon._worker.invoke.records import tokens_of


class ClientError(Exception):
    """Anything with attributes."""

    def __init__(self, **attributes: Any) -> None:
        self.__dict__.update(attributes)


class Nasty(Exception):
    """Its attributes fail when they are asked for."""

    def __init__(self, kind: type[BaseException] = RuntimeError) -> None:
        self.kind = kind

    def __getattr__(self, name: str) -> Any:
        raise self.kind(name)


def respond(status: int, **headers: str) -> Any:
    headers = {name.replace("_", "-"): value for name, value in headers.items()}
    return SimpleNamespace(status_code=status, headers=headers)


def test_retry_after() -> None:
    assert retry_after_of(ClientError(retry_after=2)) == 2.0
    assert retry_after_of(ClientError(response=respond(429, retry_after="3.5"))) == 3.5
    assert retry_after_of(ClientError(response=respond(429, Retry_After="3.5"))) == 3.5
    assert retry_after_of(ClientError(headers={"Retry-After": "4"})) == 4.0  # aiohttp
    # openai
    assert retry_after_of(ClientError(response=respond(429, retry_after_ms="250", retry_after="1"))) == 0.25
    assert retry_after_of(ValueError()) is None
    assert retry_after_of(ClientError(retry_after=1e300)) == 1e9  # no engine has a longer time
    for odd in (float("nan"), -1, "soon", object()):
        assert retry_after_of(ClientError(retry_after=odd)) is None
        assert retry_after_of(ClientError(headers={"Retry-After": odd})) is None


def test_retry_after_may_be_a_date() -> None:
    soon = email.utils.formatdate(time.time() + 100, usegmt=True)
    seconds = retry_after_of(ClientError(response=respond(503, retry_after=soon)))
    assert seconds is not None
    assert 60 < seconds <= 101
    past = email.utils.formatdate(time.time() - 100, usegmt=True)
    assert retry_after_of(ClientError(response=respond(503, retry_after=past))) == 0.0


def test_a_status_is_found_wherever_clients_keep_it() -> None:
    assert http_status_of(ClientError(status_code=429)) == 429  # openai
    assert http_status_of(ClientError(status=503)) == 503  # aiohttp
    assert http_status_of(ClientError(response=respond(404))) == 404  # httpx, requests
    with urllib.error.HTTPError("http://x", 500, "", Message(), None) as error:
        assert http_status_of(error) == 500
    for odd in (200, 999, "429", True, None, 4.29):
        assert http_status_of(ClientError(status_code=odd)) is None


def test_real_clients() -> None:
    httpx = pytest.importorskip("httpx")
    request = httpx.Request("GET", "http://x")
    answered = httpx.Response(429, headers={"Retry-After": "1.5"}, request=request)
    busy = httpx.HTTPStatusError("busy", request=request, response=answered)
    assert (http_status_of(busy), retry_after_of(busy)) == (429, 1.5)
    assert http_status_of(httpx.ConnectError("refused", request=request)) == UNREACHABLE
    assert http_status_of(httpx.RemoteProtocolError("broken off")) == BROKEN
    assert http_status_of(httpx.ReadTimeout("late")) is None
    openai = pytest.importorskip("openai")
    busy = openai.RateLimitError("busy", response=answered, body=None)
    assert (http_status_of(busy), retry_after_of(busy)) == (429, 1.5)
    assert http_status_of(openai.APIConnectionError(request=request)) == BROKEN
    unreachable = openai.APIConnectionError(request=request)
    unreachable.__cause__ = httpx.ConnectError("refused", request=request)
    assert http_status_of(unreachable) == UNREACHABLE
    assert http_status_of(openai.APITimeoutError(request=request)) is None
    aiohttp = pytest.importorskip("aiohttp")
    info: Any = None
    refused = aiohttp.ClientResponseError(info, (), status=503, headers={"Retry-After": "2"})
    assert (http_status_of(refused), retry_after_of(refused)) == (503, 2.0)
    assert http_status_of(aiohttp.ServerDisconnectedError()) == BROKEN


def test_a_failed_connection_is_no_timeout() -> None:
    assert http_status_of(ConnectionRefusedError()) == UNREACHABLE
    assert http_status_of(socket.gaierror()) == UNREACHABLE
    assert http_status_of(ConnectionResetError()) == BROKEN
    assert http_status_of(TimeoutError()) is None
    assert http_status_of(ValueError("no judgement")) is None
    answered = ConnectionResetError()
    answered.response = respond(200)  # type: ignore[attr-defined]  # as requests has it
    assert http_status_of(answered) is None


def test_nothing_raises() -> None:
    assert http_status_of(Nasty()) is None
    assert retry_after_of(Nasty()) is None
    assert http_status_of(Nasty(KeyboardInterrupt)) is None
    assert retry_after_of(Nasty(SystemExit)) is None
    assert tokens_of(Nasty()) is None


@pytest.mark.parametrize(
    ("usage", "tokens"),
    [
        (SimpleNamespace(total_tokens=12), 12.0),
        ({"prompt_tokens": 2, "total_tokens": 12}, 12.0),
        (12, 12.0),
        (0, 0.0),
        ({}, None),
        ("12", None),
        (True, None),
        (None, None),
        (-1, None),
        (float("nan"), None),
    ],
)
def test_tokens_are_those_that_servers_send(usage: object, tokens: float | None) -> None:
    assert tokens_of(usage) == tokens

"""Two thousand requests in flight, clients of every kind together, and what the server itself fails
on: none is lost."""

from __future__ import annotations

import asyncio
import errno
import json
import logging
import random
import resource
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import aiohttp
import pytest

from guerdon._serve.app import make_app
from guerdon._serve.counters import Counters
from guerdon._serve.drain import Drain
from guerdon._serve.permits import Permits
from guerdon._serve.settings import ServerSettings
from tests.clock import eventually as until
from tests.serve.replicas import TEXT, value
from tests.serve.serving import RunningServer, answer_of, serving

# A server takes a connection for each five files that it may open.
_FILES = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
REQUESTS = 2000 if _FILES == resource.RLIM_INFINITY else min(2000, _FILES // 6)

WAITS = """
import asyncio, os
from guerdon import reward

@reward(timeout=250)
async def wait(text: str) -> float:
    while not os.path.exists(os.environ["GO"]):
        await asyncio.sleep(0.2)
    return float(len(text))
"""


async def ask_all(one: RunningServer, texts: list[str]) -> list[float]:
    """All at once, a connection each."""
    connector = aiohttp.TCPConnector(limit=0)
    async with aiohttp.ClientSession(connector=connector, timeout=aiohttp.ClientTimeout(total=250)) as session:

        async def ask(text: str) -> float:
            async with session.post(one.url + "/score", json={"text": text}) as response:
                response.raise_for_status()
                return float((await response.json())["reward"])

        return await asyncio.gather(*(ask(text) for text in texts))


def test_two_thousand_requests_in_flight(tmp_path: Path) -> None:
    texts, go = ["x" * (index % 97) for index in range(REQUESTS)], tmp_path / "go"
    with serving(tmp_path, functions="", text=WAITS, GO=str(go)) as one:

        def all_are_in_flight() -> None:
            until(lambda: one.metric("guerdon_serve_samples_in_flight") == len(texts), seconds=100)
            go.touch()

        async def both() -> list[float]:
            sending = asyncio.create_task(ask_all(one, texts))
            await asyncio.to_thread(all_are_in_flight)
            return await sending

        assert asyncio.run(both()) == [float(len(text)) for text in texts]
        assert one.metric('guerdon_serve_requests_total{path="/score",status="200"}') == REQUESTS
        assert one.end()[0] == 0


def test_good_clients_are_served_among_bad_ones(tmp_path: Path) -> None:
    """Some vanish, some send junk, some drip; those that behave get what a serial loop gives."""
    chance = random.Random(15)

    async def bad(one: RunningServer) -> None:
        reader, writer = await asyncio.open_connection("127.0.0.1", one.port)
        kind = chance.randrange(4)
        head = (
            b"POST /score HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: 20\r\n\r\n"
        )
        try:
            if kind == 0:
                writer.write(head + b'{"text": "0123456"}\n')
            elif kind == 1:
                writer.write(head[: chance.randrange(len(head))])
            elif kind == 2:
                writer.write(head + b"{{{{{{{{{{{{{{{{{{{{")
                await reader.read(1000)
            else:
                writer.write(head + b'{"te')
                await asyncio.sleep(0.2)
            await writer.drain()
        finally:
            writer.close()

    async def good(one: RunningServer, session: aiohttp.ClientSession, text: str) -> float | None:
        async with session.post(one.url + "/score", json={"text": text}) as response:
            response.raise_for_status()
            found: float | None = (await response.json())["reward"]
            return found

    async def run(one: RunningServer, texts: list[str]) -> list[float | None]:
        async with aiohttp.ClientSession() as session:
            noise = [asyncio.create_task(bad(one)) for _ in range(300)]
            found = await asyncio.gather(*(good(one, session, text) for text in texts))
            await asyncio.gather(*noise, return_exceptions=True)
            return found

    texts = [f"good {index}" for index in range(300)]
    with serving(tmp_path, functions="", text=TEXT) as one:
        found = asyncio.run(run(one, texts))
        import numpy as np

        assert found == [None if (v := value(text)) is None else float(np.float32(v)) for text in texts]
        until(lambda: one.metric("guerdon_serve_samples_in_flight") == 0)
        until(lambda: one.metric("guerdon_serve_body_bytes") == 0)
        assert one.end()[0] == 0


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
    return *await answer_of(app, path, json.dumps(REQUEST).encode()), counters.text()


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

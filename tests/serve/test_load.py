"""Two thousand requests in flight, clients of every kind together, and what the server itself fails
on: none is lost."""

from __future__ import annotations

import asyncio
import errno
import logging
import random
import resource
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import aiohttp
import numpy as np
import pytest

from tests.clock import eventually as until
from tests.serve.replicas import TEXT, value
from tests.serve.serving import Answer, RunningServer, answer_of, serving

# A server takes a connection for each five files that it may open.
_FILES = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
REQUESTS = 2000 if _FILES == resource.RLIM_INFINITY else min(2000, _FILES // 6)


# Goes on once there is a file of the name in $GO.
WAITS = """
import asyncio, os
from guerdon import reward

@reward(timeout=250)
async def wait(text: str) -> float:
    while not os.path.exists(os.environ["GO"]):
        await asyncio.sleep(0.2)
    return float(len(text))
"""


Asked = list["asyncio.Task[Answer]"]


def ask_together(
    one: RunningServer, bodies: list[object], go: Path, enough: Callable[[Asked], bool], *, seconds: float = 60.0
) -> list[Answer]:
    """Answers to requests that are in flight together, a connection each; those whose connection is
    closed have the status 0. The server's function, `WAITS`, goes on once there are enough, which
    takes so many seconds at most."""

    async def ask_all() -> list[Answer]:
        connector = aiohttp.TCPConnector(limit=0)
        async with aiohttp.ClientSession(connector=connector, timeout=aiohttp.ClientTimeout(total=250)) as session:

            async def ask(body: object) -> Answer:
                async with session.post(one.url + "/score", json=body) as response:
                    headers = {name.lower(): value for name, value in response.headers.items()}
                    return Answer(response.status, headers, await response.text())

            asked = [asyncio.create_task(ask(body)) for body in bodies]
            await asyncio.to_thread(until, lambda: enough(asked), seconds=seconds)
            await asyncio.to_thread(go.touch)
            found = await asyncio.gather(*asked, return_exceptions=True)
            return [one if isinstance(one, Answer) else Answer(0, {}, "") for one in found]

    return asyncio.run(ask_all())


def test_two_thousand_requests_in_flight(tmp_path: Path) -> None:
    texts, go = ["x" * (index % 97) for index in range(REQUESTS)], tmp_path / "go"
    with serving(tmp_path, functions="", text=WAITS, GO=str(go)) as one:

        def all_are_in_flight(_: object) -> bool:
            return one.metric("guerdon_serve_samples_in_flight") == len(texts)

        bodies: list[object] = [{"text": text} for text in texts]
        answers = ask_together(one, bodies, go, all_are_in_flight, seconds=100)
        assert [answer.json["reward"] for answer in answers] == [float(len(text)) for text in texts]
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
        assert found == [None if (v := value(text)) is None else float(np.float32(v)) for text in texts]
        until(lambda: one.metric("guerdon_serve_samples_in_flight") == 0)
        until(lambda: one.metric("guerdon_serve_body_bytes") == 0)
        assert one.end()[0] == 0


class Failing:
    """A dispatcher whose scorer raises."""

    names = ("one",)
    _submitter = SimpleNamespace(group_function=None)

    def __init__(self, error: Exception) -> None:
        self._error = error
        self._sample_scorer = self

    async def result(self, *arguments: object) -> Any:
        raise self._error


def ask(error: Exception, path: str) -> tuple[Answer, str]:
    """The answer and the metrics."""
    return asyncio.run(answer_of(Failing(error), path, b'{"completion": "a"}'))


@pytest.mark.fault(
    "the server itself fails on a request",
    sees="500 with the reason; a traceback on stderr; counted",
)
def test_an_unexpected_error_is_logged_and_counted(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.ERROR, "guerdon.serve"):
        answer, counted = ask(KeyError("odd"), "/t/secret-token-0123456789/score")
    assert answer.status == 500
    assert "its log says why" in answer.json["error"]
    assert 'guerdon_serve_requests_total{path="/score",status="500"} 1' in counted
    assert "a request to /score failed" in caplog.text
    assert "KeyError: 'odd'" in caplog.text
    assert "secret" not in caplog.text


@pytest.mark.fault(
    "the server has no descriptors left for a request", sees="503 with `Retry-After`; `http_reward` asks another server"
)
def test_without_descriptors_another_server_is_asked() -> None:
    answer, counted = ask(OSError(errno.EMFILE, "Too many open files"), "/score")
    assert (answer.status, answer.headers["retry-after"]) == (503, "2")
    assert "Too many open files" in answer.json["error"]
    assert 'guerdon_serve_requests_total{path="/score",status="503"} 1' in counted
    assert ask(OSError(errno.EIO, "odd"), "/score")[0].status == 500

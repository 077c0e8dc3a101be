"""Judge calls of one second, 2048 and 256 at once, over TLS: the http lane compared with reqwest (a
Rust program), and with openai, httpx and aiohttp on asyncio.

    python -m pytest benches/python/bench_judge.py --benchmark-only

The server is the mock judge, in a separate process. Connections are made in a first round that is
not counted. CPU time is counted for the client's process, and latency for each call in the client.
Target: 2048 under 1.3 s, and no handshakes after the first round. httpx, and openai which uses
httpx, take minutes for a round of 2048, because the time of their pool grows with the square of its
connections. Both are measured with 256.
"""

from __future__ import annotations

import asyncio
import json
import re
import ssl
import statistics
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import AsyncExitStack, contextmanager
from typing import Any

import pytest

from benches.python.mock_judge import MockJudge, build, mock_judge
from guerdon import Dispatcher, Limit, Server, judge
from tests.http.server import chat_completion, question, serving

CALLS = 2048
FEWER = 256
PROMPT = "Rate this from 0 to 10: {completion}"
TEXTS = [f"[[score {index % 11}]] " + "x" * 1000 for index in range(CALLS)]

pytestmark = pytest.mark.timeout(600)

# Scores, the 99th percentile of a call, CPU seconds.
Run = Callable[[], tuple[list[float], float, float]]


def p99(times: list[float]) -> float:
    return sorted(times)[len(times) * 99 // 100]


@contextmanager
def guerdon_lane(server: MockJudge, texts: list[str], at_once: int) -> Iterator[Run]:
    graded = judge(
        server=Server(f"{server.url}/v1", ca_file=server.ca_file),
        model="mock",
        prompt=PROMPT,
        limit=Limit(concurrency=at_once),
        pure=False,  # the texts repeat
    )
    with Dispatcher([graded]) as dispatcher:

        def run() -> tuple[list[float], float, float]:
            start = time.process_time()
            result = dispatcher.score(completions=texts)
            cpu = time.process_time() - start
            return result.rewards.ravel().tolist(), result.timings["judge"]["run_p99_s"], cpu

        yield run


@contextmanager
def gathered(client: Any, texts: list[str]) -> Iterator[Run]:
    """`client` is an asynchronous context manager whose value scores one text."""
    with asyncio.Runner() as runner:
        stack = AsyncExitStack()
        ask = runner.run(stack.enter_async_context(client))

        async def timed(text: str) -> tuple[float, float]:
            start = time.perf_counter()
            return await ask(text), time.perf_counter() - start

        async def everything() -> list[tuple[float, float]]:
            return await asyncio.gather(*map(timed, texts))

        def run() -> tuple[list[float], float, float]:
            start = time.process_time()
            found = runner.run(everything())
            cpu = time.process_time() - start
            return [score for score, _ in found], p99([took for _, took in found]), cpu

        try:
            yield run
        finally:
            runner.run(stack.aclose())


@contextmanager
def reqwest(server: MockJudge, texts: list[str], at_once: int) -> Iterator[Run]:
    if server.ca_file is None:
        pytest.skip("without TLS there is nothing to compare")
    program = build("reqwest-client", "reqwest")
    command = [program, f"{server.url}/v1/chat/completions", server.ca_file, str(len(texts)), str(at_once)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        into, out = process.stdin, process.stdout
        assert into is not None
        assert out is not None

        def run() -> tuple[list[float], float, float]:
            into.write("round\n")
            into.flush()
            found = json.loads(out.readline())
            return found["scores"], found["p99_s"], found["cpu_s"]

        yield run


def messages(text: str) -> dict[str, Any]:
    return {"model": "mock", "messages": [{"role": "user", "content": PROMPT.format(completion=text)}]}


def score(content: str) -> float:
    return float(content.removeprefix("Score: "))


class Aiohttp:
    def __init__(self, server: MockJudge) -> None:
        self.server = server

    async def __aenter__(self) -> Any:
        import aiohttp

        context = ssl.create_default_context(cafile=self.server.ca_file)
        self.session = aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=CALLS, ssl=context))

        async def ask(text: str) -> float:
            async with self.session.post(f"{self.server.url}/v1/chat/completions", json=messages(text)) as answer:
                return score((await answer.json())["choices"][0]["message"]["content"])

        return ask

    async def __aexit__(self, *error: object) -> None:
        await self.session.close()


class Httpx:
    def __init__(self, server: MockJudge) -> None:
        self.server = server

    def client(self) -> Any:
        import httpx

        limits = httpx.Limits(max_connections=CALLS, max_keepalive_connections=CALLS)
        context = ssl.create_default_context(cafile=self.server.ca_file)
        return httpx.AsyncClient(verify=context, limits=limits, timeout=60)

    async def __aenter__(self) -> Any:
        self.http = self.client()

        async def ask(text: str) -> float:
            answer = await self.http.post(f"{self.server.url}/v1/chat/completions", json=messages(text))
            return score(answer.json()["choices"][0]["message"]["content"])

        return ask

    async def __aexit__(self, *error: object) -> None:
        await self.http.aclose()


class Openai(Httpx):
    async def __aenter__(self) -> Any:
        import openai

        self.http = self.client()
        client = openai.AsyncOpenAI(base_url=f"{self.server.url}/v1", api_key="none", http_client=self.http)

        async def ask(text: str) -> float:
            answer = await client.chat.completions.create(**messages(text))
            return score(answer.choices[0].message.content)

        return ask


# Name, required module, runner, rounds.
CONTENDERS: list[tuple[str, str, Callable[[MockJudge, list[str], int], Any], int]] = [
    ("guerdon, http lane", "guerdon", guerdon_lane, 5),
    ("reqwest, tokio", "guerdon", reqwest, 5),
    ("aiohttp, asyncio.gather", "aiohttp", lambda server, texts, _: gathered(Aiohttp(server), texts), 3),
    ("httpx, asyncio.gather", "httpx", lambda server, texts, _: gathered(Httpx(server), texts), 3),
    ("openai, asyncio.gather", "openai", lambda server, texts, _: gathered(Openai(server), texts), 3),
]


@contextmanager
def in_short() -> Iterator[MockJudge]:
    """A server for a run that times nothing: without TLS, in this process."""
    with serving(
        lambda path, body: chat_completion("Score: " + re.findall(r"score (\d+)", question(body))[0])
    ) as server:
        yield MockJudge(server.url, None)


RUNS = [
    pytest.param(calls, contender, id=f"{calls}-{contender[0].split(',')[0]}")
    for calls in (CALLS, FEWER)
    for contender in CONTENDERS
    if calls == FEWER or contender[1] not in ("httpx", "openai")
]


@pytest.mark.parametrize(("calls", "contender"), RUNS)
def test_calls_of_a_second(benchmark: Any, tables: Any, calls: int, contender: Any) -> None:
    name, module, start, rounds = contender
    pytest.importorskip(module)
    title = benchmark.group = f"{calls} judge calls of 1 s at once, TLS"
    texts = TEXTS[: 16 if benchmark.disabled else calls]
    judging = in_short() if benchmark.disabled else mock_judge("--tls", "--latency", "fixed:1")
    with judging as server, start(server, texts, len(texts)) as run:
        run()
        before = 0 if benchmark.disabled else server.seen()["handshakes"]
        cpu: list[float] = []
        slowest: list[float] = []

        def measured() -> list[float]:
            scores, slow, used = run()
            cpu.append(used)
            slowest.append(slow)
            return list(scores)

        scores = benchmark.pedantic(measured, rounds=rounds)
        # Asking made one more.
        handshakes = 0 if benchmark.disabled else server.seen()["handshakes"] - before - 1
    assert scores == [float(index % 11) for index in range(len(texts))]
    if benchmark.disabled:
        return
    wall = benchmark.stats.stats.median
    cells = {
        "wall s": wall,
        "calls a second": calls / wall,
        "p99 s": statistics.median(slowest),
        "CPU µs a call": statistics.median(cpu) * 1e6 / calls,
        "new handshakes": handshakes / rounds,
    }
    tables.add(title, name, cells, "wall ≤ 1.3, 0 handshakes" if (calls, start) == (CALLS, guerdon_lane) else "")
    benchmark.extra_info.update(cells)


@pytest.mark.parametrize("contender", CONTENDERS[:2], ids=["guerdon", "reqwest"])
def test_more_calls_than_connections(benchmark: Any, tables: Any, contender: Any) -> None:
    name, _, start, rounds = contender
    if benchmark.disabled and start is reqwest:
        pytest.skip("without TLS there is nothing to compare")
    title = benchmark.group = f"{CALLS} judge calls of 0.1 s, {FEWER} at once, TLS"
    texts = TEXTS[: 16 if benchmark.disabled else CALLS]
    judging = in_short() if benchmark.disabled else mock_judge("--tls", "--latency", "fixed:0.1")
    with judging as server, start(server, texts, 4 if benchmark.disabled else FEWER) as run:
        run()
        first = 0 if benchmark.disabled else server.seen()["handshakes"] - 1
        cpu: list[float] = []

        def measured() -> list[float]:
            scores, _, used = run()
            cpu.append(used)
            return scores

        scores = benchmark.pedantic(measured, rounds=rounds)
        handshakes = 0 if benchmark.disabled else server.seen()["handshakes"] - 2 - first
    assert scores == [float(index % 11) for index in range(len(texts))]
    if benchmark.disabled:
        return
    cells = {
        "wall s": benchmark.stats.stats.median,
        "CPU µs a call": statistics.median(cpu) * 1e6 / CALLS,
        "handshakes, first round": first,
        "new handshakes a round": handshakes / rounds,
    }
    tables.add(title, name, cells, f"{FEWER} handshakes, then 0" if start is guerdon_lane else "")
    benchmark.extra_info.update(cells)

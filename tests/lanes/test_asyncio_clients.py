"""HTTP clients that reward functions keep over batches: their loop stays the same."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import aiohttp
import httpx
import openai
import pytest

from guerdon import Dispatcher, StatefulReward, Status
from guerdon.results import RewardBatch
from tests.http.server import chat_completion, question, serving
from tests.lanes.lane_helpers import looped

SAMPLES = 40


def answer(path: str, body: dict[str, Any]) -> dict[str, Any]:
    """Returns the length of the text that was sent."""
    if path == "/length":
        return {"score": len(body["text"])}
    return chat_completion(str(len(question(body))))


@pytest.fixture
def connections() -> set[int]:
    """The ports of the clients' connections."""
    return set()


@pytest.fixture
def url(connections: set[int]) -> Iterator[str]:
    with serving(answer, delay=0.002) as server:
        accept = server.get_request

        def counted() -> Any:
            accepted = accept()
            connections.add(accepted[1][1])
            return accepted

        server.get_request = counted  # type: ignore[method-assign]
        yield server.url


class Judge(StatefulReward):
    """Opens its client once on its loop, as a user would who read the documentation."""

    def __init__(self, url: str) -> None:
        self.url = url

    async def setup(self) -> None:
        self.client = self.open()

    async def close(self) -> None:
        await self.client.close()

    def open(self) -> Any:
        raise NotImplementedError


class Httpx(Judge):
    def open(self) -> Any:
        return httpx.AsyncClient()

    async def close(self) -> None:
        await self.client.aclose()

    async def score(self, completion: str) -> float:
        answer = await self.client.post(f"{self.url}/length", json={"text": completion})
        return float(answer.json()["score"])


class Aiohttp(Judge):
    def open(self) -> Any:
        return aiohttp.ClientSession()

    async def score(self, completion: str) -> float:
        async with self.client.post(f"{self.url}/length", json={"text": completion}) as answer:
            return float((await answer.json())["score"])


class OpenAI(Judge):
    def open(self) -> Any:
        return openai.AsyncOpenAI(base_url=f"{self.url}/v1", api_key="none")

    async def score(self, completion: str) -> float:
        messages: Any = [{"role": "user", "content": completion}]
        answer = await self.client.chat.completions.create(model="m", messages=messages)
        return float(answer.choices[0].message.content or "nan")


def cached(kind: type[Judge], url: str) -> Callable[..., Awaitable[float]]:
    """A function with a client in a closure, opened at the first call; "close" closes it."""
    held: list[Judge] = []

    async def judge(completion: str) -> float:
        if completion == "close":
            await held[0].close()
            return 0.0
        if not held:
            held.append(kind(url))
            await held[0].setup()
        score: Any = held[0].score
        return float(await score(completion))

    return judge


def check(dispatcher: Dispatcher, batches: int = 5) -> None:
    for batch in range(batches):
        texts = ["x" * (sample + batch) for sample in range(SAMPLES)]
        result = dispatcher.score(completions=texts)
        assert result.rewards[:, 0, 0].tolist() == [len(text) for text in texts], result.failures()[:2]


@pytest.mark.parametrize("kind", [Httpx, Aiohttp, OpenAI])
def test_a_client_of_a_stateful_reward_lives_as_long_as_the_dispatcher(
    kind: type[Judge], url: str, connections: set[int]
) -> None:
    with Dispatcher([looped(kind(url))]) as dispatcher:
        check(dispatcher)
    assert 0 < len(connections) <= SAMPLES


@pytest.mark.parametrize("kind", [Httpx, Aiohttp, OpenAI])
def test_a_cached_client_is_good_for_many_batches_and_callers(kind: type[Judge], url: str) -> None:
    with Dispatcher([looped(cached(kind, url))]) as dispatcher:
        check(dispatcher)
        with ThreadPoolExecutor(4) as callers:
            for done in [callers.submit(check, dispatcher, 2) for _ in range(4)]:
                done.result()

        async def from_a_loop() -> None:
            results = await asyncio.gather(*(dispatcher.ascore(completions=["abc"] * 5) for _ in range(3)))
            assert all((result.status == Status.OK).all() for result in results)

        asyncio.run(from_a_loop())
        assert dispatcher.score(completions=["close"]).status.max() == Status.OK


def test_client_of_another_loop_is_reported_with_the_option_to_give() -> None:
    """Each function has a loop of its own, and a lock belongs to the loop that first waited."""
    lock = asyncio.Lock()

    async def locks(completion: str) -> float:
        async with lock:
            await asyncio.sleep(0.01)
        return 1.0

    def result(**options: Any) -> RewardBatch:
        functions = [looped(locks, name=name, **options) for name in ("one", "other")]
        with Dispatcher(functions, max_failure_rate=1.0) as dispatcher:
            return dispatcher.score(completions=["a"] * 8)

    failures = result().failures()
    assert failures
    assert all('reward(…, loop="shared")' in failure.reason for failure in failures)
    lock = asyncio.Lock()
    assert result(loop="shared").failures() == []

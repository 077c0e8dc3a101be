"""Clients that score texts with several judges: the http lane, litellm's Router and openai's
AsyncOpenAI, each with the same timeout and number of retries."""

from __future__ import annotations

import asyncio
import math
import re
import time
from collections.abc import Callable, Sequence
from typing import Any

PROMPT = "Rate this from 0 to 10: {completion}"
NUMBER = re.compile(r"\d+")

# A score for each text, NaN for a missing one; the seconds that scoring took.
Scored = tuple[list[float], float]
Client = Callable[[Sequence[str], Sequence[str], int, float, int], Scored]


def guerdon(urls: Sequence[str], texts: Sequence[str], at_once: int, timeout: float, retries: int) -> Scored:
    from guerdon import Dispatcher, Limit, judge

    addresses: Any = [f"{url}/v1" for url in urls]
    asked = judge(
        base_url=addresses if len(addresses) > 1 else addresses[0],
        model="mock",
        prompt=PROMPT,
        timeout=timeout,
        retries=retries,
        limit=Limit(concurrency=at_once),
    )
    with Dispatcher([asked], max_failure_rate=1.0) as dispatcher:
        start = time.perf_counter()
        result = dispatcher.score(completions=list(texts))
        return result.rewards.ravel().tolist(), time.perf_counter() - start


def litellm_router(urls: Sequence[str], texts: Sequence[str], at_once: int, timeout: float, retries: int) -> Scored:
    import litellm

    litellm.suppress_debug_info = True
    deployments = [
        {"model_name": "judge", "litellm_params": {"model": "openai/mock", "api_base": f"{url}/v1", "api_key": "none"}}
        for url in urls
    ]
    router = litellm.Router(model_list=deployments, num_retries=retries, timeout=timeout)

    async def ask(number: int, text: str) -> str:
        answer = await router.acompletion(model="judge", messages=message(text))
        return str(answer.choices[0].message.content)

    return asyncio.run(all_of(ask, texts, at_once))


def openai_client(urls: Sequence[str], texts: Sequence[str], at_once: int, timeout: float, retries: int) -> Scored:
    import httpx
    import openai

    limits = httpx.Limits(max_connections=at_once, max_keepalive_connections=at_once)
    clients = [
        openai.AsyncOpenAI(
            base_url=f"{url}/v1",
            api_key="none",
            timeout=timeout,
            max_retries=retries,
            http_client=httpx.AsyncClient(limits=limits, timeout=timeout),
        )
        for url in urls
    ]

    async def ask(number: int, text: str) -> str:
        # It has one address: a program with several takes them in turn.
        client: Any = clients[number % len(clients)]
        answer = await client.chat.completions.create(model="mock", messages=message(text))
        return str(answer.choices[0].message.content)

    return asyncio.run(all_of(ask, texts, at_once))


def message(text: str) -> list[dict[str, str]]:
    return [{"role": "user", "content": PROMPT.format(completion=text)}]


async def all_of(ask: Callable[[int, str], Any], texts: Sequence[str], at_once: int) -> Scored:
    free = asyncio.Semaphore(at_once)

    async def one(number: int, text: str) -> float:
        async with free:
            try:
                found = NUMBER.search(await ask(number, text))
            except Exception:  # whatever these clients raise: the sample has no score
                return math.nan
            return float(found[0]) if found else math.nan

    start = time.perf_counter()
    scores = await asyncio.gather(*(one(number, text) for number, text in enumerate(texts)))
    return list(scores), time.perf_counter() - start


CLIENTS: dict[str, Client] = {
    "guerdon, http lane": guerdon,
    "litellm, Router": litellm_router,
    "openai, AsyncOpenAI": openai_client,
}

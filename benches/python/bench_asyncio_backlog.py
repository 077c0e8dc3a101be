"""Calls that wait for an event loop cost nothing, and do not go before older calls.

    python -m pytest benches/python/bench_asyncio_backlog.py --benchmark-only

- Samples added one by one, faster than they are scored: µs a sample, for 10 000 and for 100 000,
  compared with one `asyncio` task a sample, awaited together.
- A submitted batch of calls that wait, a quarter of a thousand at a time, with a `finish_group`:
  seconds from the end of the first group's calls to its delivery. Target: 0.2 with calls of 1 s.
"""

from __future__ import annotations

import asyncio
import time
from typing import Any

import pytest

from guerdon import Dispatcher, StatefulReward, reward

ADDED = "samples added one by one, a wait of 1 ms each: µs a sample"
FIRST = "4096 calls of 1 s, 256 at a time: s"
CONCURRENCY = 256

pytestmark = pytest.mark.timeout(600)


async def waits(completion: str) -> float:
    await asyncio.sleep(0.001)
    return 1.0


@pytest.mark.parametrize("samples", [10_000, 100_000])
@pytest.mark.parametrize("side", ["asyncio.gather", "guerdon"])
def test_one_by_one(benchmark: Any, tables: Any, side: str, samples: int) -> None:
    benchmark.group = ADDED
    samples = 200 if benchmark.disabled else samples

    async def gathered() -> None:
        limit = asyncio.Semaphore(CONCURRENCY)

        async def one() -> float:
            async with limit:
                return await waits("a")

        await asyncio.gather(*[asyncio.create_task(one()) for _ in range(samples)])

    def streamed() -> None:
        stream = dispatcher.stream()
        for _ in range(samples):
            stream.add(completions=["a"])
        stream.finish()
        assert stream.result().rewards.sum() == samples

    with Dispatcher([reward(waits)]) as dispatcher:
        dispatcher.score(completions=["a"] * 10)
        benchmark.pedantic(streamed if side == "guerdon" else lambda: asyncio.run(gathered()), rounds=3)
    if not benchmark.disabled:
        cells = {"best": benchmark.stats.stats.min * 1e6 / samples}
        tables.add(ADDED, f"{side}, {samples} samples", cells, "flat" * (side == "guerdon"))


class Slow(StatefulReward):
    """Notes when the calls of the first group end."""

    def __init__(self, seconds: float) -> None:
        self.seconds = seconds
        self.ended = 0.0

    async def score(self, completion: str) -> float:
        await asyncio.sleep(self.seconds)
        if int(completion) < 8:
            self.ended = time.monotonic()
        return 1.0

    async def finish_group(self, scores: list[float | None]) -> list[float | None]:
        return scores


def test_the_first_group(benchmark: Any, tables: Any) -> None:
    benchmark.group = FIRST
    samples, seconds = (64, 0.01) if benchmark.disabled else (4096, 1.0)
    function, late = Slow(seconds), []
    texts = [str(index) for index in range(samples)]

    def first_group() -> Any:
        pending = dispatcher.submit(completions=texts, num_generations=8)
        assert next(iter(pending.groups())).index < CONCURRENCY // 8
        late.append(time.monotonic() - function.ended)
        return pending.result()

    with Dispatcher([reward(function, name="slow")]) as dispatcher:
        result = benchmark.pedantic(first_group, rounds=1)
    assert result.rewards.sum() == samples
    if not benchmark.disabled:
        cells = {"first group after its calls": late[0], "all": result.elapsed_s}
        tables.add(FIRST, "guerdon, asyncio lane", cells, "≤ 0.2, ideal of all: 16")

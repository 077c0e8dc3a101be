"""Cost of a timeline per sample, by lane.

    python -m pytest benches/python/bench_trace.py --benchmark-only

The same batches with ``trace=`` and without, in turns, in one run. Functions do nothing, so that
only the engine is measured: with the default of ``shortest`` these calls have no separate slices,
and nothing is dropped; with 0 all have, as far as the writer keeps up. The judge's calls have
slices in any case.
"""

from __future__ import annotations

import statistics
import time
from pathlib import Path
from typing import Any

import pytest

from guerdon import Dispatcher, Limit, Trace, judge, reward
from tests.http.server import chat_completion, serving

ROUNDS = 15
SAMPLES = {"thread": 65_536, "asyncio": 16_384, "process": 32_768}

pytestmark = pytest.mark.timeout(600)


def trivial(completion: str) -> float:
    return 1.0


async def coroutine(completion: str) -> float:
    return 1.0


def compare(
    benchmark: Any, tables: Any, title: str, name: str, function: Any, samples: int, folder: Path, shortest: list[float]
) -> None:
    completions = ["x" * 64] * samples
    traces = [None, *(Trace(folder / f"{value}.pftrace", shortest=value) for value in shortest)]
    dispatchers = [Dispatcher([function], workers=1, trace=trace) for trace in traces]
    times: list[list[float]] = [[] for _ in dispatchers]

    def turn() -> None:
        for dispatcher, own in zip(dispatchers, times, strict=True):
            begin = time.perf_counter()
            dispatcher.score(completions=completions, num_generations=16)
            own.append(time.perf_counter() - begin)
            time.sleep(0.3 if not benchmark.disabled else 0)  # the writer's part ends

    try:
        benchmark.pedantic(turn, rounds=ROUNDS, warmup_rounds=1)
        if benchmark.disabled:
            return
        without, *with_trace = (statistics.median(own[1:]) / samples * 1e6 for own in times)
        cells = {"without": without}
        for value, median in zip(shortest, with_trace, strict=True):
            cells[f"shortest={value:g}"] = median
            cells[f"ratio {value:g}"] = median / without
        tables.add(title, name, cells, "")
        assert dispatchers[1].stats()["trace_dropped"] == 0
    finally:
        for dispatcher in dispatchers:
            dispatcher.close()


@pytest.mark.parametrize("lane", ["thread", "asyncio", "process"])
def test_a_sample(benchmark: Any, tables: Any, lane: Any, tmp_path: Path) -> None:
    function = reward(coroutine if lane == "asyncio" else trivial, name="trivial", lane=lane)
    samples = 256 if benchmark.disabled else SAMPLES[lane]
    title = "trivial functions: µs a sample"
    compare(benchmark, tables, title, lane, function, samples, tmp_path, [50e-6, 0.0])


def test_a_request(benchmark: Any, tables: Any, tmp_path: Path) -> None:
    with serving(lambda path, body: chat_completion("7")) as server:
        limit = Limit(concurrency=8)
        asks = judge(base_url=f"{server.url}/v1", model="m", prompt="{completion}", pure=False, limit=limit)
        samples = 32 if benchmark.disabled else 2048
        compare(benchmark, tables, "a judge's calls: µs a sample", "http", asks, samples, tmp_path, [50e-6])

"""Gain from more cores: one worker, then twice as many, up to the cores of this machine.

    python -m pytest benches/python/bench_cores.py --benchmark-only

Trivial calls show where the driver is the bound. Heavy-tailed calls keep a core busy to an end by
the clock; no order of work beats the bound, max(sum ÷ workers, longest), and if the costs are
unknown, none beats "a list": each call, in order, goes to the worker that is free first. Code
rewards run small programs behind all fences.
"""

from __future__ import annotations

import heapq
import statistics
import time
from collections.abc import Callable
from typing import Any

import pytest

from benches.python import workloads
from benches.python.bench_code import TEST
from benches.python.bench_stragglers import heavy_tailed
from guerdon import Dispatcher, RegistrationError, Status, code_reward, reward
from guerdon._system.cpu_count import usable_cores

ROUNDS = 5
TRIVIAL, COSTS, PROGRAMS = 65536, 1500, 250
TITLE = "what more workers bring"

# 1, 2, 4, ... and all of them.
WORKERS = sorted({usable_cores(), *(2**power for power in range(usable_cores().bit_length()))})

pytestmark = pytest.mark.timeout(900)


def trivial(completion: str) -> float:
    return float(len(completion))


def timed(benchmark: Any, run: Callable[[], None]) -> list[float]:
    """Seconds of each round, after one that is not counted."""
    run()
    times: list[float] = []

    def one_round() -> None:
        start = time.perf_counter()
        run()
        times.append(time.perf_counter() - start)

    benchmark.pedantic(one_round, rounds=ROUNDS)
    return times


@pytest.mark.parametrize("workers", WORKERS)
def test_trivial_calls(benchmark: Any, tables: Any, workers: int) -> None:
    samples = 64 if benchmark.disabled else TRIVIAL
    texts = ["x" * 2048] * samples
    with Dispatcher([reward(trivial)], workers=workers) as dispatcher:
        times = timed(benchmark, lambda: check(dispatcher.score(completions=texts)))
    cells = {"median": 1e6 * statistics.median(times) / samples, "best": 1e6 * min(times) / samples}
    tables.add(f"{TITLE}: µs a sample of 2 KB, a trivial call", f"{workers} workers", cells)


@pytest.mark.parametrize("workers", WORKERS)
def test_heavy_tailed_calls(benchmark: Any, tables: Any, workers: int) -> None:
    seconds = heavy_tailed(1, 64 if benchmark.disabled else COSTS * workers)
    bound = max(sum(seconds) / workers, max(seconds))
    columns: dict[str, Any] = {"completions": ["x"] * len(seconds), "seconds": seconds}
    with Dispatcher([reward(workloads.spin)], workers=workers) as dispatcher:
        times = timed(benchmark, lambda: check(dispatcher.score(**columns)))
    took = statistics.median(times)
    cells = {"÷ bound": took / bound, "÷ a list": took / in_order(seconds, workers)}
    tables.add(f"{TITLE}: makespan of heavy-tailed calls, medians", f"{workers} workers", cells)


def in_order(seconds: list[float], workers: int) -> float:
    """The makespan where each call, in order, goes to the worker that is free first."""
    ends = [0.0] * workers
    for cost in seconds:
        heapq.heapreplace(ends, ends[0] + cost)
    return max(ends)


@pytest.mark.parametrize("workers", WORKERS)
def test_programs(benchmark: Any, tables: Any, workers: int) -> None:
    try:
        code = code_reward(check="test", extract="whole")
    except RegistrationError as error:  # what is missing here
        pytest.skip(str(error))
    count = 4 if benchmark.disabled else PROGRAMS * workers
    sources = [f"def sorted_words(text, key={number}):\n    return sorted(text.split())\n" for number in range(count)]
    with Dispatcher([code], workers=workers) as dispatcher:
        times = timed(benchmark, lambda: check(dispatcher.score(completions=sources, test=[TEST] * count)))
    cells = {"median": count / statistics.median(times), "best": count / min(times)}
    tables.add(f"{TITLE}: programs a second behind fences", f"{workers} workers", cells)


def check(result: Any) -> None:
    assert result.status.max() == Status.OK, result.failures()[:1]

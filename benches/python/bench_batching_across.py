"""Batches submitted at the same time: the gain from calls with samples of several batches.

    python -m pytest benches/python/bench_batching_across.py --benchmark-only

64 batches of 8 samples, as an asynchronous trainer or a service submits them, and a model that
takes 5 ms a call and 0.1 ms a sample, in one worker: with the samples of all batches in its calls,
and with those of one. The two take turns in one run.
"""

from __future__ import annotations

import statistics
import time
from typing import Any

import pytest

from guerdon import Dispatcher, reward

BATCHES, GROUP = 64, 8
TITLE = "64 batches of 8 at the same time, 5 ms a call and 0.1 ms a sample: ms for all"

pytestmark = pytest.mark.timeout(600)


def together(completions: list[str]) -> list[float]:
    time.sleep(0.005 + 0.0001 * len(completions))
    return [1.0] * len(completions)


def apart(completions: list[str], log_metric: Any) -> list[float]:
    """A function that records is called on samples of one batch."""
    return together(completions)


def test_batches_together_and_apart(benchmark: Any, tables: Any) -> None:
    benchmark.group = TITLE
    rounds, count = (1, 4) if benchmark.disabled else (9, BATCHES)
    taken: dict[str, list[float]] = {"apart": [], "together": []}

    def all_of(dispatcher: Dispatcher) -> float:
        start = time.perf_counter()
        batches = [dispatcher.submit(completions=["c"] * GROUP, num_generations=GROUP) for _ in range(count)]
        for batch in batches:
            assert batch.result(60).rewards.sum() == GROUP
        return (time.perf_counter() - start) * 1e3

    with (
        Dispatcher([reward(apart, batch_size=32)], workers=1) as one,
        Dispatcher([reward(together, batch_size=32)], workers=1) as all_in_one,
    ):

        def turns() -> None:
            taken["apart"].append(all_of(one))
            taken["together"].append(all_of(all_in_one))

        benchmark.pedantic(turns, rounds=rounds, warmup_rounds=0 if benchmark.disabled else 1)
    if not benchmark.disabled:
        ratios = [apart / together for apart, together in zip(*(times[1:] for times in taken.values()), strict=True)]
        for name, times in taken.items():
            tables.add(TITLE, name, {"best": min(times[1:]), "median": statistics.median(times[1:])})
        tables.add(TITLE, "apart / together", {"best": max(ratios), "median": statistics.median(ratios)})

"""Makespan of heavy-tailed costs: 4096 calls that keep a core busy, on two workers.

    python -m pytest benches/python/bench_stragglers.py --benchmark-only

The bound is max(sum of costs ÷ workers, longest cost): no order of work can beat it. Costs are
Pareto-distributed, the longest cut at half a second. Target: at most 1.05 of the bound on each of
the seeds, 1.03 if it can be had. The calls spin to an end by the clock, so that two workers need
two cores for themselves: another program's share shows as a loss. The same with calls that wait
instead needs no cores; their ratio to the bound by the measured times ("of what ran") shows the
order of work alone.
"""

from __future__ import annotations

import random
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from typing import Any

import pytest

from benches.python import workloads
from guerdon import Dispatcher, Status, reward

SEEDS = [1, 2, 3, 4, 5]
SAMPLES, WORKERS = 4096, 2
SHAPE, LEAST, MOST = 1.1, 0.0005, 0.5
TITLE = f"{SAMPLES} heavy-tailed calls on {WORKERS} workers: times the bound"

pytestmark = pytest.mark.timeout(600)


# Name, and the work of a call.
CONTENDERS = {
    "guerdon, process lane": workloads.spin,
    "guerdon, process lane, calls that wait": workloads.wait,
    "ProcessPoolExecutor, chunks of 1": workloads.spin,
}


def heavy_tailed(seed: int, samples: int) -> list[float]:
    chance = random.Random(seed)
    return [min(MOST, LEAST * chance.paretovariate(SHAPE)) for _ in range(samples)]


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("contender", CONTENDERS)
def test_makespan(benchmark: Any, tables: Any, contender: str, seed: int) -> None:
    seconds = heavy_tailed(seed, 64 if benchmark.disabled else SAMPLES)
    bound = max(sum(seconds) / WORKERS, max(seconds))
    cells = {"bound, s": bound, "longest, s": max(seconds)}
    if contender.startswith("guerdon"):
        with Dispatcher([reward(CONTENDERS[contender])], workers=WORKERS) as dispatcher:
            texts = ["x"] * len(seconds)
            dispatcher.score(completions=texts[:64], seconds=[0.0] * 64)
            result = benchmark.pedantic(lambda: dispatcher.score(completions=texts, seconds=seconds), rounds=1)
        assert result.status.max() == Status.OK
        cells["of what ran"] = result.elapsed_s / max(float(result.run_s.sum()) / WORKERS, float(result.run_s.max()))
    else:
        with ProcessPoolExecutor(WORKERS, mp_context=get_context("forkserver")) as pool:
            list(pool.map(workloads.spin, [0.0] * 64))
            assert sum(benchmark.pedantic(lambda: list(pool.map(workloads.spin, seconds)), rounds=1)) == len(seconds)
    if not benchmark.disabled:
        cells = {"makespan ÷ bound": benchmark.stats.stats.min / bound, **dict(reversed(cells.items()))}
        tables.add(TITLE, f"{contender}, seed {seed}", cells, "≤ 1.05" * contender.startswith("guerdon"))

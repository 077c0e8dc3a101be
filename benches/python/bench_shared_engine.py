"""Two ranks of a host that share one engine, compared with two that have separate workers.

    python -m pytest benches/python/bench_shared_engine.py --benchmark-only

All hard prompts are at one rank, whose calls wait, so that eight workers need no eight cores. The
step ends when both ranks have their rewards. The bound is the total of the times that calls really
took ÷ workers. Target: at most 1.05 of it. The ranks are two dispatchers on threads of one process;
the shared engine is a separate process in any case.

A second table has the additional cost of a sample of 2 KB with a trivial function.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from typing import Any

import pytest

from benches.python import workloads
from guerdon import Dispatcher, Status, reward

WORKERS, RANKS = 8, 2
HARD, SECONDS = 160, 0.1
SAMPLES, ROUNDS = 8192, 7

pytestmark = pytest.mark.timeout(600)


@contextmanager
def ranks(function: Any, shared: bool, workers: int) -> Iterator[list[Dispatcher]]:
    with ExitStack() as stack:
        option: dict[str, Any] = {"cluster": "host", "workers": workers} if shared else {"workers": workers // RANKS}
        yield [stack.enter_context(Dispatcher([reward(function)], **option)) for _ in range(RANKS)]


@pytest.mark.parametrize("shared", [True, False], ids=["shared", "split"])
def test_all_hard_prompts_at_one_rank(benchmark: Any, tables: Any, shared: bool) -> None:
    count = 16 if benchmark.disabled else HARD
    costs = [[SECONDS] * count, [0.001] * count]
    with ranks(workloads.wait, shared, WORKERS) as dispatchers, ThreadPoolExecutor(RANKS) as pool:

        def step(seconds: list[list[float]]) -> list[Any]:
            def score(rank: int) -> Any:
                return dispatchers[rank].score(completions=["x"] * len(seconds[rank]), seconds=seconds[rank])

            return list(pool.map(score, range(RANKS)))

        step([[0.01] * 64] * RANKS)  # all workers are there
        results = benchmark.pedantic(lambda: step(costs), rounds=1)
    assert all(result.status.max() == Status.OK for result in results)
    if benchmark.disabled:
        return
    bound = sum(float(result.run_s.sum()) for result in results) / WORKERS
    took = benchmark.stats.stats.min
    name = "one engine" if shared else "split pools"
    cells = {"step, s": took, "total work ÷ workers, s": bound, "ratio": took / bound}
    tables.add(f"{HARD} hard prompts at one of two ranks", name, cells, "≤ 1.05" * shared)


def test_a_trivial_sample(benchmark: Any, tables: Any) -> None:
    completions = ["x" * 2048] * (256 if benchmark.disabled else SAMPLES)
    times: list[list[float]] = [[], []]
    with ranks(workloads.trivial, False, 4) as own, ranks(workloads.trivial, True, 2) as shared:

        def turn() -> None:
            for dispatcher, took in zip((own[0], shared[0]), times, strict=True):
                begun = time.perf_counter()
                dispatcher.score(completions=completions)
                took.append(time.perf_counter() - begun)

        benchmark.pedantic(turn, rounds=ROUNDS, warmup_rounds=1)
    if not benchmark.disabled:
        mine, theirs = (statistics.median(took[1:]) / SAMPLES * 1e6 for took in times)
        cells = {"own workers, µs": mine, "shared engine, µs": theirs, "more, µs": theirs - mine}
        tables.add("A trivial function on 2 KB", "2 workers", cells, "≤ 10 more")

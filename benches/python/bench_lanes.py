"""Overhead per sample of each lane and of its peers: a trivial function, 4096 samples of 2 KB, all
in one run.

    python -m pytest benches/python/bench_lanes.py --benchmark-only

Ray takes part in `.venv-verl` (after `make test-verl`).

A round of Guerdon's is `Dispatcher.score` with everything in it: capturing the data, running it,
waiting, arrays, looking for failures. A peer's round is handing over 4096 texts and collecting a
list of results. Engines, pools and loops are up and warm. Targets in microseconds a sample, over
the bare call for the thread lane.
"""

from __future__ import annotations

import asyncio
import statistics
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Executor, ProcessPoolExecutor, ThreadPoolExecutor
from contextlib import contextmanager
from multiprocessing import get_context
from typing import Any

import pytest

from guerdon import Dispatcher, Limit, reward
from guerdon._system.gil import has_gil

SAMPLES = 4096
TEXTS = [f"{index:08d}" + "x" * 2040 for index in range(SAMPLES)]
ROUNDS = 40
WORKERS = 2
TITLE = f"{SAMPLES} samples of 2 KB, trivial function: µs a sample"
ONE = "one sample through an idle lane: µs"
COMPUTING = "1024 samples, a pure Python function of 1 ms, without the GIL"
ONE_TARGETS = {"process": "≤ 80 p50", "thread": "≤ 60 p50", "asyncio": "≤ 80 p50"}

pytestmark = pytest.mark.timeout(600)


def trivial(completion: str) -> float:
    return 1.0


async def trivial_async(completion: str) -> float:
    return 1.0


async def suspending(completion: str) -> float:
    await asyncio.sleep(0)
    return 1.0


@contextmanager
def bare() -> Iterator[Callable[[], Any]]:
    yield lambda: [trivial(text) for text in TEXTS]


@contextmanager
def gathered(function: Any) -> Iterator[Callable[[], Any]]:
    async def gather() -> list[float]:
        return await asyncio.gather(*[function(text) for text in TEXTS])

    with asyncio.Runner() as runner:
        yield lambda: runner.run(gather())


@contextmanager
def pooled(pool: Executor, chunk: int = 1) -> Iterator[Callable[[], Any]]:
    with pool:
        yield lambda: list(pool.map(trivial, TEXTS, chunksize=chunk))


class Actor:
    def call(self, text: str) -> float:
        return trivial(text)


@contextmanager
def actors() -> Iterator[Callable[[], Any]]:
    ray = pytest.importorskip("ray", reason="the environment of `make test-verl` has Ray")
    ray.init(num_cpus=WORKERS, include_dashboard=False, log_to_driver=False)
    try:
        made = [ray.remote(Actor).remote() for _ in range(WORKERS)]
        yield lambda: ray.get([made[index % WORKERS].call.remote(text) for index, text in enumerate(TEXTS)])
    finally:
        ray.shutdown()


@contextmanager
def dispatched(function: Any, workers: int = WORKERS, **options: Any) -> Iterator[Callable[[], Any]]:
    with Dispatcher([reward(function, name="trivial", **options)], workers=workers) as dispatcher:
        yield lambda: dispatcher.score(completions=TEXTS)


def processes() -> ProcessPoolExecutor:
    return ProcessPoolExecutor(WORKERS, mp_context=get_context("forkserver"))


# Name, runner, rounds, target.
CONTENDERS: list[tuple[str, Callable[[], Any], int, str]] = [
    ("bare call", bare, ROUNDS, ""),
    ("ThreadPoolExecutor, 8 threads", lambda: pooled(ThreadPoolExecutor(8)), 10, ""),
    ("guerdon, thread lane", lambda: dispatched(trivial, lane="thread"), ROUNDS, "≤ 0.15 over the bare call"),
    ("asyncio.gather", lambda: gathered(trivial_async), ROUNDS, ""),
    ("guerdon, asyncio lane", lambda: dispatched(trivial_async), ROUNDS, "≤ 0.5"),
    ("asyncio.gather, one suspension", lambda: gathered(suspending), ROUNDS, ""),
    ("guerdon, asyncio lane, one suspension", lambda: dispatched(suspending), ROUNDS, "≤ 1.5"),
    ("ProcessPoolExecutor, chunks of 1", lambda: pooled(processes()), 5, ""),
    ("ProcessPoolExecutor, chunks of 64", lambda: pooled(processes(), 64), ROUNDS, ""),
    ("Ray, two actors, a call a sample", actors, 5, ""),
    ("guerdon, process lane", lambda: dispatched(trivial), ROUNDS, "≤ 1.0 best, ≤ 1.2 median"),
    ("guerdon, process lane, 64 workers", lambda: dispatched(trivial, 64), ROUNDS, "with two ÷ 0.7"),
    ("guerdon, process lane, 192 workers", lambda: dispatched(trivial, 192), ROUNDS, ""),
]


@pytest.mark.parametrize("contender", CONTENDERS, ids=[name for name, *_ in CONTENDERS])
def test_trivial_function(benchmark: Any, tables: Any, contender: Any) -> None:
    name, start, rounds, target = contender
    benchmark.group = TITLE
    with start() as run:
        for _ in range(1 if benchmark.disabled else 5):
            run()
        result = benchmark.pedantic(run, rounds=rounds)
    assert len(result) == SAMPLES
    if benchmark.disabled:
        return
    times = {"best": benchmark.stats.stats.min, "median": benchmark.stats.stats.median}
    cells = {which: seconds * 1e6 / SAMPLES for which, seconds in times.items()}
    known = tables.rows.get(TITLE)
    cells["best over the bare call"] = cells["best"] - (known[0].cells["best"] if known else cells["best"])
    tables.add(TITLE, name, cells, target)
    benchmark.extra_info.update(cells)


@pytest.mark.parametrize("pause_ms", [0, 1], ids=["at once", "1 ms later"])
@pytest.mark.parametrize("lane", ["process", "thread", "asyncio"])
def test_one_sample(benchmark: Any, tables: Any, lane: str, pause_ms: int) -> None:
    """A sample is submitted to an idle lane `pause_ms` after the last; timed from before the call
    of `score` to its result.

    After a pause the cores have gone to sleep, and four threads of two processes are woken one by
    the other.
    """
    benchmark.group = ONE
    function = trivial_async if lane == "asyncio" else trivial
    with Dispatcher([reward(function, name="trivial", lane=lane)], workers=WORKERS) as dispatcher:
        for _ in range(3 if benchmark.disabled else 300):
            dispatcher.score(completions=TEXTS[:1])

        def idle() -> None:
            if pause_ms:
                time.sleep(pause_ms / 1e3)

        benchmark.pedantic(
            lambda: dispatcher.score(completions=TEXTS[:1]), setup=idle, rounds=3 if benchmark.disabled else 1000
        )
    if not benchmark.disabled:
        times = sorted(benchmark.stats.stats.data)
        cells = {"best": times[0], "p50": statistics.median(times), "p99": times[len(times) * 99 // 100]}
        name = f"guerdon, {lane} lane, " + ("right after the last" if not pause_ms else f"{pause_ms} ms after the last")
        tables.add(ONE, name, {k: v * 1e6 for k, v in cells.items()}, ONE_TARGETS[lane])


def computing(completion: str) -> float:
    end = time.thread_time() + 0.001
    while time.thread_time() < end:
        pass
    return 1.0


@pytest.mark.skipif(has_gil(), reason="with the GIL one thread computes at a time: this needs a free-threaded Python")
@pytest.mark.parametrize("threads", [1, WORKERS])
def test_computing_threads(benchmark: Any, tables: Any, threads: int) -> None:
    """A pure Python function that computes for 1 ms. The wall counts on an idle machine; on another
    one, the cores that it got: processor time over the wall."""
    benchmark.group = COMPUTING
    options: Any = {"lane": "thread", "limit": Limit(concurrency=threads)}
    with Dispatcher([reward(computing, name="computing", **options)]) as dispatcher:

        def run() -> None:
            dispatcher.score(completions=TEXTS[: 64 if benchmark.disabled else 1024])

        run()
        before = time.process_time()
        benchmark.pedantic(run, rounds=1 if benchmark.disabled else 5)
    if not benchmark.disabled:
        wall = benchmark.stats.stats.min
        cores = (time.process_time() - before) / sum(benchmark.stats.stats.data)
        known = tables.rows.get(COMPUTING)
        cells = {"best s": wall, "cores": cores, "times one thread": known[0].cells["best s"] / wall if known else 1.0}
        tables.add(COMPUTING, f"guerdon, thread lane, {threads} threads", cells, "≥ 1.8 × one" * (threads > 1))

"""The trainer's event loop while workers hold their GIL in C.

    python -m pytest benches/python/bench_trainer_loop_lag.py --benchmark-only

An asyncio loop in this process sleeps a millisecond at a time and notes how late it wakes up: with
nothing else, while as many C programs spin as there are cores, and while a regular expression
backtracks in as many workers. Target: p99 at most twice that of the C programs.
"""

from __future__ import annotations

import asyncio
import os
import statistics
import subprocess
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

import pytest

from benches.python import workloads
from guerdon import Dispatcher, reward

CORES = len(os.sched_getaffinity(0))
SECONDS = 5.0
PAUSE = 0.001
TITLE = f"lag of an asyncio loop, {CORES} cores: ms"

pytestmark = pytest.mark.timeout(600)


@contextmanager
def nothing() -> Iterator[None]:
    yield


@contextmanager
def spinning_programs() -> Iterator[None]:
    programs = [subprocess.Popen(["sh", "-c", "while :; do :; done"]) for _ in range(CORES)]
    try:
        yield
    finally:
        for program in programs:
            program.kill()
            program.wait()


@contextmanager
def backtracking_workers() -> Iterator[None]:
    with Dispatcher([reward(workloads.backtrack, timeout=600)], workers=CORES, max_failure_rate=1.0) as dispatcher:
        dispatcher.score(completions=["a"] * CORES)
        pending = dispatcher.submit(completions=["a" * 40 + "b"] * CORES)
        yield
        assert not pending.done
        pending.cancel()


CONTENDERS = {
    "nothing else": nothing,
    f"{CORES} C programs that spin": spinning_programs,
    f"guerdon, {CORES} regular expressions in flight": backtracking_workers,
}


async def lags(seconds: float) -> list[float]:
    found = []
    end = time.monotonic() + seconds
    while (start := time.monotonic()) < end:
        await asyncio.sleep(PAUSE)
        found.append(time.monotonic() - start - PAUSE)
    return found


@pytest.mark.parametrize("contender", CONTENDERS)
def test_loop_lag(benchmark: Any, tables: Any, contender: str) -> None:
    with ExitStack() as stack:
        stack.enter_context(CONTENDERS[contender]())
        time.sleep(0.1)
        seconds = 0.2 if benchmark.disabled else SECONDS
        found = sorted(benchmark.pedantic(lambda: asyncio.run(lags(seconds)), rounds=1))
    if not benchmark.disabled:
        cells = {"p50": statistics.median(found), "p99": found[len(found) * 99 // 100], "max": found[-1]}
        target = "≤ 2 × that of C programs, p99" if "guerdon" in contender else ""
        tables.add(TITLE, contender, {which: value * 1e3 for which, value in cells.items()}, target)

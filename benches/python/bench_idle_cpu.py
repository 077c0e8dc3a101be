"""CPU time of an idle dispatcher: threads in this process, zygote and workers.

    python -m pytest benches/python/bench_idle_cpu.py --benchmark-only

All lanes are up and have scored a batch. Target: near 0. Compared with the sleeping process
alone.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import psutil
import pytest

from benches.python import workloads
from guerdon import Dispatcher, reward

SECONDS = 10.0
WORKERS = 2
TITLE = "CPU while nothing is to do: ms a second"

pytestmark = pytest.mark.timeout(600)


async def wait(completion: str) -> float:
    await asyncio.sleep(0)
    return 1.0


@contextmanager
def nothing() -> Iterator[None]:
    yield


@contextmanager
def idle_dispatcher() -> Iterator[None]:
    functions = [reward(workloads.trivial), reward(workloads.trivial, name="threaded", lane="thread"), reward(wait)]
    with Dispatcher(functions, workers=WORKERS) as dispatcher:
        dispatcher.score(completions=["x"] * 1000)
        time.sleep(1.0)  # what was just busy settles
        yield


CONTENDERS: dict[str, Callable[[], Any]] = {
    "a sleeping process": nothing,
    f"guerdon, all lanes, {WORKERS} workers": idle_dispatcher,
}


def spent() -> float:
    """CPU seconds of this process and of all below it."""
    this = psutil.Process()
    times = [process.cpu_times() for process in [this, *this.children(recursive=True)]]
    return sum(time.user + time.system for time in times)


@pytest.mark.parametrize("contender", CONTENDERS)
def test_idle(benchmark: Any, tables: Any, contender: str) -> None:
    seconds = 0.2 if benchmark.disabled else SECONDS
    with CONTENDERS[contender]():
        before = spent()
        benchmark.pedantic(lambda: time.sleep(seconds), rounds=1)
        used = spent() - before
    assert used < 0.5 * seconds
    if not benchmark.disabled:
        tables.add(TITLE, contender, {"CPU": used * 1e3 / seconds}, "≈ 0" * ("guerdon" in contender))

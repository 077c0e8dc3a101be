"""Recycling workers: what it costs a batch that workers are replaced every 100 calls.

    python -m pytest benches/python/bench_worker_recycling.py --benchmark-only

Calls that each take a millisecond of CPU time, with and without `Recycle(calls=100)`, in turns. The
target is a dip in throughput of less than 5 %. A second table has what each resource limit costs a
call that does nothing.
"""

from __future__ import annotations

import statistics
import time
from typing import Any

import pytest

from benches.python import few_imports
from guerdon import Dispatcher, Recycle, reward
from guerdon._system.cpu_count import usable_cores

ROUNDS = 12
TITLE = "recycling every 100 calls of 1 ms: calls a second, all workers"
LIMITS = "resource limits, calls that do nothing: µs a call, one worker"

pytestmark = pytest.mark.timeout(600)


def _seconds(dispatcher: Dispatcher, texts: list[str]) -> float:
    start = time.perf_counter()
    result = dispatcher.score(completions=texts)
    assert not result.failures()
    return time.perf_counter() - start


def test_recycling(benchmark: Any, tables: Any) -> None:
    workers = usable_cores()
    texts = ["x"] * 1000 * workers
    with (
        Dispatcher([reward(few_imports.work)], workers=workers) as kept,
        Dispatcher([reward(few_imports.work)], workers=workers, recycle=Recycle(calls=100)) as recycled,
    ):
        for dispatcher in (kept, recycled):
            _seconds(dispatcher, texts[:200])
        took: dict[str, list[float]] = {"kept": [], "recycled": []}

        def one_round() -> None:
            took["kept"].append(_seconds(kept, texts))
            took["recycled"].append(_seconds(recycled, texts))

        benchmark.pedantic(one_round, rounds=ROUNDS)
        assert recycled.stats()["worker_restarts"] >= ROUNDS * 9
    rates = {name: len(texts) / statistics.median(times) for name, times in took.items()}
    dips = sorted(1 - kept / recycled for kept, recycled in zip(took["kept"], took["recycled"], strict=True))
    dip = {"dip, median of pairs, %": 100 * statistics.median(dips)}
    tables.add(TITLE, "kept", {"median": rates["kept"], "dip, median of pairs, %": 0.0})
    tables.add(TITLE, "Recycle(calls=100)", {"median": rates["recycled"], **dip}, "dip < 5 %")


@pytest.mark.parametrize(
    ("name", "limits"),
    [
        ("none", {}),
        ("memory_limit", {"memory_limit": "1GB"}),
        ("env", {"env": ["PATH"]}),
        ("max_output", {"max_output": "1MB"}),
        ("isolation='call'", {"isolation": "call"}),
    ],
)
def test_resource_limits(benchmark: Any, tables: Any, name: str, limits: dict[str, Any]) -> None:
    count = 300 if "isolation" in limits else 3000
    with Dispatcher([reward(few_imports.nothing, **limits)], workers=1) as dispatcher:
        texts = ["x"] * count
        _seconds(dispatcher, texts)
        benchmark.pedantic(lambda: _seconds(dispatcher, texts), rounds=15)
    stats = benchmark.stats.stats
    tables.add(LIMITS, name, {"best": stats.min / count * 1e6, "median": stats.median / count * 1e6})

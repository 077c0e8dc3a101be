"""Eight judges of which one is slow by ten times: the tail of calls, with and without hedging.

    python -m pytest benches/python/bench_judge_fleet.py --benchmark-only

The servers run in separate processes and answer after 0.1 s, the slow one after 1 s; 1024 calls, 64
in flight, in a fresh dispatcher without measurements of its endpoints. The bound is eight healthy
ones. Target: with hedging the 99th percentile is at most twice the bound's.
"""

from __future__ import annotations

from typing import Any

import pytest

from guerdon import Dispatcher, Limit, Server, judge
from tests.http.test_fleets import replicas

CALLS = 1024
USUAL, SLOW = 0.1, 1.0
TITLE = f"{CALLS} calls of {USUAL:g} s, 64 in flight, to eight endpoints"

pytestmark = pytest.mark.timeout(600)


@pytest.mark.parametrize(
    ("name", "slow", "options"),
    [
        ("eight healthy ones (the bound)", False, {}),
        ("one slow by ten times", True, {}),
        ('the same, `hedge_after="p95"`', True, {"hedge_after": "p95"}),
        ("the same, `hedge_after=0.3`", True, {"hedge_after": 0.3}),
    ],
    ids=["healthy", "slow", "p95", "seconds"],
)
def test_the_tail(benchmark: Any, tables: Any, name: str, slow: bool, options: dict[str, Any]) -> None:
    calls = 64 if benchmark.disabled else CALLS
    with replicas([USUAL] * 7 + [SLOW if slow else USUAL]) as (addresses, _):
        made = judge(
            server=Server(addresses, **options),
            model="m",
            prompt="{completion}",
            limit=Limit(concurrency=64),
            pure=False,
        )
        with Dispatcher([made]) as dispatcher:
            result = benchmark.pedantic(
                lambda: dispatcher.score(completions=["x"] * calls, num_generations=8), rounds=1
            )
            assert not result.failures()
            if not benchmark.disabled:
                timings, stats = result.timings["judge"], dispatcher.stats()
                cells = {
                    "p50 ms": timings["run_p50_s"] * 1000,
                    "p99 ms": timings["run_p99_s"] * 1000,
                    "max ms": timings["run_max_s"] * 1000,
                    "sent twice %": stats["hedges"] / calls * 100,
                }
                tables.add(TITLE, name, cells)

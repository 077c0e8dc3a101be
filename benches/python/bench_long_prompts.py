"""20,000 judge calls in flight with prompts of 64 KB each: the memory of the trainer's process, and
calls that failed.

    python -m pytest benches/python/bench_long_prompts.py --benchmark-only

The server is the mock judge, a process of its own, whose answers take 60 s, so that all calls are
in flight at once; over HTTP/2, since 20,000 connections are more files than most processes may
open. Bound: the prompts themselves, 1.28 GB of Python strings. Target: under 2 GB in all, no call
lost.
"""

from __future__ import annotations

import resource
from typing import Any

import numpy as np
import pytest

from benches.python.mock_judge import mock_judge
from guerdon import Dispatcher, Limit, http_reward, judge

CALLS = 20_000
LENGTH = 64 << 10
LATENCY = 60

pytestmark = pytest.mark.timeout(600)


def resident() -> int:
    """Bytes of this process in memory now."""
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * resource.getpagesize()


def test_memory_of_long_prompts(benchmark: Any) -> None:
    texts = [f"[[score {index % 11}]] ".ljust(LENGTH, "x") for index in range(CALLS)]
    with mock_judge("--http2", "--latency", f"fixed:{LATENCY}") as server:
        graded = judge(
            base_url=f"{server.url}/v1",
            model="mock",
            prompt="Rate this: {completion}",
            http2=True,
            timeout=300,
            retries=0,
            limit=Limit(concurrency=CALLS),
            pure=False,  # the texts repeat
        )
        with Dispatcher([graded], max_failure_rate=1.0) as dispatcher:
            before = resident()
            result = benchmark.pedantic(dispatcher.score, kwargs={"completions": texts}, rounds=1, iterations=1)
        # The server speaks HTTP/2 and nothing else.
        seen = http_reward(f"{server.url}/seen", columns=["completion"], score="most_in_flight", http2=True)
        with Dispatcher([seen]) as dispatcher:
            in_flight = dispatcher.score(completions=["x"]).rewards.item()
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    benchmark.extra_info.update(
        peak_gb=peak / 1e9, before_gb=before / 1e9, prompts_gb=CALLS * LENGTH / 1e9, in_flight=in_flight
    )
    print(f"\n{peak / 1e9:.2f} GB, {before / 1e9:.2f} GB before; {in_flight:.0f} in flight at once")
    assert not result.failures()
    np.testing.assert_array_equal(result.rewards.ravel(), np.arange(CALLS) % 11)
    assert in_flight == CALLS
    assert peak < 2e9

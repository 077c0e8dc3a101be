"""20,000 judge calls in flight with prompts of 64 KB each: the memory of the trainer's process, and
calls that failed.

    python -m pytest benches/python/bench_long_prompts.py --benchmark-only

The server is the mock judge in a separate process, whose answers take 60 s, so that all calls are
in flight at once; over HTTP/2, since 20,000 connections are more files than most processes may
open. Bound: the prompts themselves, 1.28 GB of Python strings. Target: under 2 GB in all, no call
lost.
"""

from __future__ import annotations

import re
import resource
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import pytest

from benches.python.mock_judge import mock_judge
from guerdon import Dispatcher, Limit, Server, http_reward, judge
from tests.http.server import chat_completion, question, serving

CALLS = 20_000
LENGTH = 64 << 10
LATENCY = 60

pytestmark = pytest.mark.timeout(600)


def resident() -> int:
    """Bytes of this process in memory now."""
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * resource.getpagesize()


@contextmanager
def server(in_short: bool) -> Iterator[str]:
    """Its address; for a run that measures nothing it is in this process, over HTTP/1.1."""
    if not in_short:
        with mock_judge("--http2", "--latency", f"fixed:{LATENCY}") as judging:
            yield judging.url
        return

    def answer(path: str, body: dict[str, Any]) -> Any:
        return chat_completion("Score: " + re.findall(r"score (\d+)", question(body))[0])

    with serving(answer) as short:
        yield short.url


def test_memory_of_long_prompts(benchmark: Any, tables: Any) -> None:
    calls = 16 if benchmark.disabled else CALLS
    texts = [f"[[score {index % 11}]] ".ljust(LENGTH, "x") for index in range(calls)]
    with server(benchmark.disabled) as url:
        graded = judge(
            server=Server(f"{url}/v1", http2=not benchmark.disabled),
            model="mock",
            prompt="Rate this: {completion}",
            timeout=300,
            retries=0,
            limit=Limit(concurrency=calls),
            pure=False,  # the texts repeat
        )
        with Dispatcher([graded], max_failure_rate=1.0) as dispatcher:
            before = resident()
            result = benchmark.pedantic(dispatcher.score, kwargs={"completions": texts}, rounds=1, iterations=1)
        assert not result.failures()
        np.testing.assert_array_equal(result.rewards.ravel(), np.arange(calls) % 11)
        if benchmark.disabled:
            return
        # The server accepts HTTP/2 only.
        seen = http_reward(server=Server(f"{url}/seen", http2=True), columns=["completion"], score="most_in_flight")
        with Dispatcher([seen]) as dispatcher:
            in_flight = dispatcher.score(completions=["x"]).rewards.item()
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    cells = {
        "peak GB": peak / 1e9,
        "before GB": before / 1e9,
        "prompts GB": CALLS * LENGTH / 1e9,
        "in flight": in_flight,
    }
    tables.add(f"{CALLS} judge calls in flight, prompts of 64 KB", "http lane", cells, "peak < 2 GB")
    benchmark.extra_info.update(cells)
    assert in_flight == CALLS
    assert peak < 2e9

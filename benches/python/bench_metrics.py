"""Metrics: the time of a scrape under load, and the cost of counting per sample.

    python -m pytest benches/python/bench_metrics.py --benchmark-only -s

Scrapes come from a separate process over one connection, while every lane is full and a thread of
this process runs Python without a pause. Counting: rounds of 4096 samples of a trivial function
with and without a port, in turns; the best rounds are compared.
"""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
import threading
import time
from typing import Any

import pytest

from guerdon import Dispatcher, reward

SAMPLES = 4096
TEXTS = ["x" * 64] * SAMPLES
ROUNDS = 30
SCRAPES = 500

pytestmark = pytest.mark.timeout(300)

_CLIENT = f"""
import http.client, json, sys, time
connection = http.client.HTTPConnection(sys.argv[1], timeout=10)
times = []
for _ in range({SCRAPES}):
    begun = time.perf_counter()
    connection.request("GET", "/metrics")
    size = len(connection.getresponse().read())
    times.append(time.perf_counter() - begun)
    time.sleep(0.002)
times.sort()
print(json.dumps([times[len(times) // 2], times[len(times) * 99 // 100], size]))
"""


@reward(lane="thread")
def trivial(text: str) -> float:
    return 1.0


@reward(lane="thread")
def naps(text: str) -> float:
    time.sleep(0.0005)
    return 1.0


@reward
def computes(text: str) -> float:
    return float(sum(range(2000)))


@reward
async def awaits(text: str) -> float:
    await asyncio.sleep(0.001)
    return 1.0


def scrape(address: str) -> tuple[float, float, int]:
    done = subprocess.run([sys.executable, "-c", _CLIENT, address], capture_output=True, text=True, check=True)
    median, slowest, size = json.loads(done.stdout)
    return median, slowest, size


@pytest.mark.parametrize("load", ["idle", "lanes full, Python busy"])
def test_scrape(benchmark: Any, load: str) -> None:
    over = threading.Event()

    def hog() -> None:
        while not over.is_set():
            sum(range(1000))

    with Dispatcher([naps, computes, awaits], metrics_port=0, workers=2) as dispatcher:
        dispatcher.score(completions=["x"] * 64)
        pending = None
        if load != "idle":
            threading.Thread(target=hog, daemon=True).start()
            pending = dispatcher.submit(completions=["x"] * 200_000)
        found = benchmark.pedantic(scrape, (dispatcher.stats()["metrics_address"],), rounds=1)
        over.set()
        if pending is not None:
            pending.cancel()
    median, slowest, size = found
    print(f"\nscrape of {size} bytes, {load}: p50 {median * 1e6:.0f} µs, p99 {slowest * 1e6:.0f} µs")


def test_counting(benchmark: Any) -> None:
    def compare() -> dict[bool, float]:
        best = {False: float("inf"), True: float("inf")}
        with Dispatcher([trivial]) as plain, Dispatcher([trivial], metrics_port=0) as counted:
            for _ in range(ROUNDS):
                for counts, dispatcher in ((False, plain), (True, counted)):
                    begun = time.perf_counter()
                    dispatcher.score(completions=TEXTS, num_generations=8)
                    best[counts] = min(best[counts], time.perf_counter() - begun)
        return best

    best = benchmark.pedantic(compare, rounds=1)
    plain, counted = (best[counts] / SAMPLES * 1e9 for counts in (False, True))
    print(f"\na sample of the thread lane: {plain:.0f} ns, with metrics {counted:.0f} ns")

"""Killing a hung sample: how late the kill is, and how soon the next worker works.

    python -m pytest benches/python/bench_timeout_kill.py --benchmark-only

A sample blocks the timeout's signal and spins, so that only SIGKILL ends it. Both times are taken
from outside the engine: the function stamps its start, this process sees the death through a pidfd,
and the next sample, which has to wait for the replacement (``workers=1``), stamps its own start.
Targets: p99 of 10 ms each.
"""

from __future__ import annotations

import os
import select
import statistics
import time
from pathlib import Path
from typing import Any

import pytest

from benches.python.uninterruptible import WORD, hanging
from guerdon import Dispatcher, Status, reward

TIMEOUT, GRACE = 0.05, 0.05
ROUNDS = 200
TITLE = "killing a hung sample: ms"

pytestmark = pytest.mark.timeout(600)


class Page:
    """The page into which the two samples of a round write their stamps."""

    def __init__(self, path: Path) -> None:
        self.path = path
        path.write_bytes(bytes(2 * WORD.size))

    def clear(self) -> None:
        with open(self.path, "r+b") as file:
            file.write(bytes(2 * WORD.size))

    def read(self, place: int) -> tuple[int, float]:
        return WORD.unpack_from(self.path.read_bytes(), place * WORD.size)  # type: ignore[return-value]


@pytest.fixture
def page(tmp_path: Path) -> Page:
    return Page(tmp_path / "page")


def death(pid: int) -> float:
    """When the process ended; waits for it."""
    descriptor = os.pidfd_open(pid)
    try:
        select.select([descriptor], [], [], 30)
        return time.monotonic()
    finally:
        os.close(descriptor)


def one_round(dispatcher: Dispatcher, page: Page) -> tuple[float, float]:
    """Seconds from when the kill was due to the death, and from the death to the start of the next
    sample."""
    page.clear()
    pending = dispatcher.submit(completions=["c"] * 2, page=[str(page.path)] * 2, place=[0, 1])
    while page.read(0)[0] == 0:
        time.sleep(0.001)
    pid, start = page.read(0)
    ended = death(pid)
    result = pending.result(timeout=30)
    assert result.status.ravel().tolist() == [Status.TIMEOUT, Status.OK]
    return ended - (start + TIMEOUT + GRACE), page.read(1)[1] - ended


@pytest.mark.parametrize("loaded", ["nothing", "math_verify"])
def test_kill(benchmark: Any, tables: Any, page: Page, loaded: str) -> None:
    """`loaded`: the packages that the zygote, and so every worker, has imported with the
    function."""
    function: Any = hanging
    if loaded == "math_verify":
        pytest.importorskip("math_verify")
        from benches.python.with_math_verify import hanging as function
    kill = reward(function, name="hanging", timeout=TIMEOUT, grace=GRACE)
    late: list[float] = []
    ready: list[float] = []

    def measure() -> None:
        overshoot, replacement = one_round(dispatcher, page)
        late.append(overshoot)
        ready.append(replacement)

    with Dispatcher([kill], workers=1) as dispatcher:
        measure()
        late.clear()
        ready.clear()
        benchmark.pedantic(measure, rounds=ROUNDS)
    if benchmark.disabled:
        return
    for what, times in (("overshoot of the kill", late), ("death to the next sample's start", ready)):
        times.sort()
        cells = {"p50": statistics.median(times), "p99": times[len(times) * 99 // 100], "max": times[-1]}
        name = f"{what} (loaded: {loaded})"
        tables.add(TITLE, name, {k: v * 1e3 for k, v in cells.items()}, "≤ 10 p99")
        benchmark.extra_info[name] = cells

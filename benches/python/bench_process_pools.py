"""The process lane compared with other process pools: throughput, the cost of hung samples, time to
recover from a death.

    python -m pytest benches/python/bench_process_pools.py --benchmark-only

Two processes each, up and warm, the same function (`workloads.obey`); `peer_pools.py` has the
additions to pools that can't end a call. Hung samples spin until they are killed: three of 256 take
1 s at best (two at once, then the third, 0.5 s each), and the figure is the time beyond that.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from benches.python.peer_pools import POOLS, TIMEOUT

SAMPLES = 4096
TEXTS = [f"{index:08d}" + "x" * 2040 for index in range(SAMPLES)]
GUARDED, HUNG = 256, (17, 101, 200)
THROUGHPUT = f"{SAMPLES} samples of 2 KB: µs a sample"
COST = f"{len(HUNG)} hung samples of {GUARDED}, timeout {TIMEOUT} s: ms beyond 1 s"
RECOVERY = "a process dies amid a call: ms until the sample has its value from another"

pytestmark = [
    pytest.mark.timeout(600),
    # loky's warning about its processes that are gone.
    pytest.mark.filterwarnings("ignore:A worker stopped while some jobs were given:UserWarning"),
]


@pytest.fixture(params=POOLS, ids=lambda kind: kind.name)
def pool(request: pytest.FixtureRequest) -> Iterator[Any]:
    if request.param.name in ("loky", "pebble"):
        pytest.importorskip(request.param.name)
    made = request.param()
    yield made
    made.close()


def test_throughput(benchmark: Any, tables: Any, pool: Any) -> None:
    benchmark.group = THROUGHPUT
    texts = TEXTS[:256] if benchmark.disabled else TEXTS
    pool.score(texts)
    assert benchmark.pedantic(lambda: pool.score(texts), rounds=20) == [1.0] * len(texts)
    if not benchmark.disabled:
        stats = benchmark.stats.stats
        cells = {"best": stats.min * 1e6 / SAMPLES, "median": stats.median * 1e6 / SAMPLES}
        tables.add(THROUGHPUT, pool.name, cells)


def test_hung_samples(benchmark: Any, tables: Any, pool: Any) -> None:
    benchmark.group = COST
    texts = ["hang" if index in HUNG else "x" for index in range(GUARDED)]
    found = benchmark.pedantic(lambda: pool.guarded(texts), rounds=5)
    assert [index for index, value in enumerate(found) if value is None] == list(HUNG)
    if not benchmark.disabled:
        times = [(seconds - 2 * TIMEOUT) * 1e3 for seconds in benchmark.stats.stats.data]
        tables.add(COST, pool.name, {"best": min(times), "median": statistics.median(times)})


def test_recovery(benchmark: Any, tables: Any, pool: Any, tmp_path: Path) -> None:
    benchmark.group = RECOVERY
    times: list[float] = []

    def recover() -> None:
        note = tmp_path / str(len(times))
        assert pool.insist(f"die {note}") == 1.0
        times.append((time.monotonic() - float(note.read_text())) * 1e3)

    benchmark.pedantic(recover, rounds=2 if benchmark.disabled else 20)
    if not benchmark.disabled:
        times.sort()
        tables.add(RECOVERY, pool.name, {"best": times[0], "median": statistics.median(times), "max": times[-1]})

"""Cost of a journal: each lane with and without one, side by side in one run, and the journal
itself: size, rate, reading.

    python -m pytest benches/python/bench_journal.py --benchmark-only
    ROWS=10000000 python -m pytest benches/python/bench_journal.py --benchmark-only -k rows

- Rounds alternate between dispatchers without a journal, with one, and with one that keeps texts;
  between rounds the writer is waited for. Walls are of the thread that scores, medians of rounds.
- The writer's CPU is that of its thread, over all rows of all rounds, closing included: as it would
  be for a run that never pauses. Target: under 1 % of what the lane takes for a sample.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import statistics
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from guerdon import Dispatcher, Journal, judge, read_journal, reward
from tests.http.server import chat_completion, serving

SAMPLES = 4096
TEXTS = [f"{index:08d}" + "x" * 2040 for index in range(SAMPLES)]
ROUNDS = 15
ROWS = int(os.environ.get("ROWS", "400000"))
TITLE = f"{SAMPLES} samples of 2 KB, trivial function: a journal's cost"
ITSELF = "a journal of {rows:,} rows, without texts, one step of 4096 samples at a time"

pytestmark = pytest.mark.timeout(3600)

Options = dict[str, Any]


def trivial(completion: str) -> float:
    return 1.0


async def trivial_async(completion: str) -> float:
    return 1.0


async def waits(completion: str) -> float:
    await asyncio.sleep(0.01)
    return 1.0


def spins(completion: str) -> float:
    """A cheap check of an answer: 20 µs."""
    end = time.perf_counter() + 20e-6
    while time.perf_counter() < end:
        pass
    return 1.0


@contextlib.contextmanager
def lane(name: str) -> Iterator[tuple[Any, list[str]]]:
    """A function of the lane, and the texts to score."""
    if name == "http, a judge":
        with serving(lambda path, body: chat_completion("7")) as server:
            ask: Options = {"base_url": f"{server.url}/v1", "model": "m", "prompt": "{completion}", "pure": False}
            yield judge(**ask, name="asked"), TEXTS[:256]
        return
    functions = {
        "thread": reward(trivial, lane="thread"),
        "asyncio": reward(trivial_async),
        "asyncio, 10 ms each": reward(waits),
        "process": reward(trivial),
        "process, 20 µs each": reward(spins),
    }
    yield functions[name], TEXTS


def writers_cpu() -> float:
    """Seconds of CPU that journals' writers have used, of those that live."""
    used = 0.0
    for task in Path("/proc/self/task").iterdir():
        with contextlib.suppress(OSError):  # it has ended
            if (task / "comm").read_text().strip() == "guerdon journal":
                used += int((task / "schedstat").read_text().split()[0]) / 1e9
    return used


def wait_for_rows(dispatcher: Dispatcher, rows: int) -> None:
    deadline = time.monotonic() + 300
    while dispatcher.stats()["journal_rows"] < rows and time.monotonic() < deadline:
        time.sleep(0.01)
    assert dispatcher.stats()["journal_rows"] == rows


@pytest.mark.parametrize(
    "name", ["thread", "asyncio", "process", "process, 20 µs each", "asyncio, 10 ms each", "http, a judge"]
)
def test_lane(benchmark: Any, tables: Any, tmp_path: Path, name: str) -> None:
    with lane(name) as (function, texts), contextlib.ExitStack() as stack:
        journals = [None, Journal(tmp_path / "rows"), Journal(tmp_path / "texts", texts=True)]
        engines = [stack.enter_context(Dispatcher([function], workers=2, journal=journal)) for journal in journals]
        walls: list[list[float]] = [[], [], []]
        cpus = [0.0, 0.0, 0.0]

        def score(which: int) -> None:
            started = time.perf_counter()
            engines[which].score(completions=texts, num_generations=8)
            walls[which].append(time.perf_counter() - started)

        def rounds() -> None:
            for which in range(3):
                before = writers_cpu()
                score(which)
                if which:
                    wait_for_rows(engines[which], len(texts) * len(walls[which]))
                cpus[which] += writers_cpu() - before

        rounds()
        cpus[:] = [0.0] * 3
        benchmark.pedantic(rounds, rounds=1 if benchmark.disabled else ROUNDS)
        if not benchmark.disabled:
            cost = statistics.median(walls[0][1:]) / len(texts) * 1e6
            for which, label in enumerate(("without", "with", "with texts")):
                cells = {"wall, µs a sample": statistics.median(walls[which][1:]) / len(texts) * 1e6}
                cells["writer's CPU, µs a row"] = cpus[which] / (len(texts) * ROUNDS) * 1e6
                cells["% of the lane"] = 100 * cells["writer's CPU, µs a row"] / cost
                tables.add(TITLE, f"{name}: {label}", cells, "1 %" if which else "")


def timed(work: Callable[[], Any]) -> tuple[float, Any]:
    started = time.perf_counter()
    result = work()
    return time.perf_counter() - started, result


def test_rows(benchmark: Any, tables: Any, tmp_path: Path) -> None:
    """Rows as fast as they come: the thread lane scores while the writer writes."""
    pq = pytest.importorskip("pyarrow.parquet")
    title = ITSELF.format(rows=ROWS)
    steps = -(-ROWS // SAMPLES)
    cpu = 0.0
    texts = ["x"] * SAMPLES

    def write() -> None:
        nonlocal cpu
        with Dispatcher([reward(trivial, lane="thread")], journal=tmp_path) as dispatcher:
            for step in range(steps):
                dispatcher.score(completions=texts, num_generations=8, trainer_state={"global_step": step})
                if step % 64 == 63:  # the thread lane makes six million rows a second
                    wait_for_rows(dispatcher, (step + 1) * SAMPLES)
            wait_for_rows(dispatcher, steps * SAMPLES)
            cpu = writers_cpu()

    benchmark.pedantic(write, rounds=1)
    deadline = time.monotonic() + 300
    while list(tmp_path.glob("*.arrows")) and time.monotonic() < deadline:
        time.sleep(0.1)
    rows = steps * SAMPLES
    size = sum(path.stat().st_size for path in tmp_path.glob("*.parquet"))
    read_journal(tmp_path, columns=["step"], filters=[("step", "=", 0)])  # imports what reads
    values, found = timed(lambda: read_journal(tmp_path, columns=["step", "function", "status", "reward"]))
    assert found.num_rows == rows
    every, _ = timed(lambda: sum(pq.read_table(path).num_rows for path in tmp_path.glob("*.parquet")))
    if not benchmark.disabled:
        cells = {
            "MB": size / 1e6,
            "bytes a row": size / rows,
            "rows a second": rows / benchmark.stats.stats.median,
            "writer, µs a row": cpu / rows * 1e6,
            "four columns read, s": values,
            "all read, s": every,
        }
        tables.add(title, "Parquet, zstd", cells)

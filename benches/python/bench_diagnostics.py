"""Cost of the watchdog and of the engine's log per sample, by lane.

    python -m pytest benches/python/bench_diagnostics.py --benchmark-only

The same batches with and without, in turns, in one run; a ratio is the median of those of the
turns. Functions do nothing, and a judge's server answers at once, so that only the engine is
measured. The log is set up once a process (``GUERDON_LOG``), so each setting has a separate
process, and these take turns.
"""

from __future__ import annotations

import contextlib
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from guerdon import Dispatcher, Limit, judge, reward
from tests.http.server import chat_completion, serving

ROOT = Path(__file__).parents[2]
SAMPLES = {"thread": 65_536, "asyncio": 16_384, "process": 32_768, "http": 2048}
FEW = 256
ROUNDS = 31

pytestmark = pytest.mark.timeout(600)

Turn = Callable[[], float]


def trivial(completion: str) -> float:
    return 1.0


async def coroutine(completion: str) -> float:
    return 1.0


def function_of(lane: Any, server: str) -> object:
    if lane == "http":
        limit = Limit(concurrency=8)
        return judge(base_url=f"{server}/v1", model="m", prompt="{completion}", pure=False, limit=limit)
    return reward(coroutine if lane == "asyncio" else trivial, name="trivial", lane=lane)


@contextlib.contextmanager
def dispatching(lane: str, samples: int, server: str, watchdog: float | None = None) -> Iterator[Turn]:
    """Scores a batch in each turn, and gives its seconds."""
    function = function_of(lane, server)
    completions = ["x" * 64] * samples
    with Dispatcher([function], workers=1, watchdog=watchdog) as dispatcher:

        def turn() -> float:
            begin = time.perf_counter()
            dispatcher.score(completions=completions, num_generations=16)
            return time.perf_counter() - begin

        yield turn


@contextlib.contextmanager
def process(lane: str, samples: int, server: str, log: str | None, file: Path) -> Iterator[Turn]:
    """The same in a process with this log."""
    environment = {name: value for name, value in os.environ.items() if not name.startswith("GUERDON_LOG")}
    environment["PYTHONPATH"] = os.pathsep.join([str(ROOT), *filter(None, [environment.get("PYTHONPATH")])])
    if log is not None:
        environment |= {"GUERDON_LOG": log, "GUERDON_LOG_FILE": str(file)}
    command = [sys.executable, __file__, lane, str(samples), server]
    pipe = subprocess.PIPE
    with subprocess.Popen(command, env=environment, stdin=pipe, stdout=pipe, text=True) as child:
        asked, answered = child.stdin, child.stdout
        assert asked is not None
        assert answered is not None

        def turn() -> float:
            asked.write("\n")
            asked.flush()
            return float(answered.readline())

        yield turn
        asked.close()


def compare(benchmark: Any, tables: Any, title: str, lane: str, samples: int, turns: dict[str, Turn]) -> None:
    """Adds a row: the median of each in µs a sample, and its ratio to the first."""
    times: dict[str, list[float]] = {name: [] for name in turns}

    def all_in_turn() -> None:
        for name, turn in turns.items():
            times[name].append(turn())

    benchmark.pedantic(all_in_turn, rounds=ROUNDS, warmup_rounds=1)
    if benchmark.disabled:
        return
    first, *others = times
    cells = {name: statistics.median(own[1:]) / samples * 1e6 for name, own in times.items()}
    for name in others:
        pairs = list(zip(times[name], times[first], strict=True))[1:]
        cells[f"ratio {name}"] = statistics.median(own / without for own, without in pairs)
    tables.add(title, lane, cells, "")


@pytest.fixture
def server() -> Iterator[str]:
    with serving(lambda path, body: chat_completion("7")) as running:
        yield running.url


@pytest.mark.parametrize("lane", SAMPLES)
def test_the_watchdog(benchmark: Any, tables: Any, lane: str, server: str) -> None:
    samples = FEW if benchmark.disabled else SAMPLES[lane]
    with (
        dispatching(lane, samples, server) as without,
        dispatching(lane, samples, server, watchdog=120.0) as watched,
    ):
        turns = {"without": without, "watchdog=120": watched}
        compare(benchmark, tables, "watchdog: µs a sample", lane, samples, turns)


@pytest.mark.parametrize("lane", SAMPLES)
def test_the_log(benchmark: Any, tables: Any, lane: str, server: str, tmp_path: Path) -> None:
    samples = FEW if benchmark.disabled else SAMPLES[lane]
    file = tmp_path / "engine.log"
    with contextlib.ExitStack() as stack:
        turns = {
            name: stack.enter_context(process(lane, samples, server, log, file))
            for name, log in (("off", None), ("error", "error"), ("debug", "debug"))
        }
        compare(benchmark, tables, "GUERDON_LOG: µs a sample", lane, samples, turns)
    assert file.stat().st_size


def answer() -> None:
    """Runs in a process of `process`: scores a batch for each line of its input."""
    lane, samples, server = sys.argv[1:]
    with dispatching(lane, int(samples), server) as turn:
        for _ in sys.stdin:
            print(turn(), flush=True)


if __name__ == "__main__":
    answer()

"""Savings by identical calls and the cache folder, and the cost of a miss.

    python -m pytest benches/python/bench_cache.py --benchmark-only

- A group of one completion, of which one call is made.
- Samples whose outcomes are in memory, compared with `functools.lru_cache` around the function,
  called in a loop; and in the folder. Target: a million lookups a second from memory
  (``cargo bench -p guerdon-cache`` has them without the rest of a batch).
- The same samples where nothing is kept yet, without the option and with it.
"""

from __future__ import annotations

import functools
import itertools
from pathlib import Path
from typing import Any

import pytest

from guerdon import Dispatcher, Limit, judge, reward
from tests.http.server import chat_completion, serving

SAMPLES = 16_384
GROUP = 64
ROUNDS = 9
TEXTS = [f"{index:08d}" * 32 for index in range(SAMPLES)]
PER_SAMPLE = f"{SAMPLES} samples of 256 B, trivial function, thread lane: µs a sample"

pytestmark = pytest.mark.timeout(600)


def trivial(completion: str) -> float:
    return 1.0


@pytest.mark.parametrize("pure", [False, True])
def test_one_completion_in_a_group(benchmark: Any, tables: Any, pure: bool) -> None:
    title = f"a group of {GROUP} equal completions, a judge of 50 ms, 8 requests at a time: s"
    with serving(lambda path, body: chat_completion("7"), delay=0.05) as server:
        ask: dict[str, Any] = {"base_url": f"{server.url}/v1", "model": "m", "prompt": "{completion}", "pure": pure}
        with Dispatcher([judge(**ask, limit=Limit(concurrency=8))]) as dispatcher:
            numbers = itertools.count()

            def score() -> None:
                result = dispatcher.score(completions=[f"answer {next(numbers)}"] * GROUP, num_generations=GROUP)
                assert (result.rewards == 7).all()

            score()
            del server.bodies[:]
            benchmark.pedantic(score, rounds=3)
        calls = len(server.bodies)
    if not benchmark.disabled:
        assert calls == (3 if pure else 3 * GROUP)
        cells = {"median": benchmark.stats.stats.median, "calls a group": calls / 3}
        tables.add(title, "pure" if pure else "pure=False", cells, "1 call" if pure else "")


def measure(benchmark: Any, tables: Any, name: str, run: Any, setup: Any = None, target: str = "") -> None:
    benchmark.group = PER_SAMPLE
    benchmark.pedantic(run, setup=setup, rounds=ROUNDS, warmup_rounds=1)
    if not benchmark.disabled:
        stats = benchmark.stats.stats
        cells = {"best": stats.min / SAMPLES * 1e6, "median": stats.median / SAMPLES * 1e6}
        tables.add(PER_SAMPLE, name, cells, target)


def test_lru_cache(benchmark: Any, tables: Any) -> None:
    kept = functools.lru_cache(maxsize=None)(trivial)

    def run() -> list[float]:
        return [kept(text) for text in TEXTS]

    measure(benchmark, tables, "`functools.lru_cache`, all hits", run)


def test_hits_in_memory(benchmark: Any, tables: Any, tmp_path: Path) -> None:
    function = reward(trivial, lane="thread", cache=tmp_path)
    with Dispatcher([function]) as dispatcher:
        dispatcher.score(completions=TEXTS)
        measure(benchmark, tables, "cache, all hits in memory", lambda: dispatcher.score(completions=TEXTS))
        assert dispatcher.stats()["cache"]["trivial"]["misses"] == SAMPLES


def test_hits_in_the_folder(benchmark: Any, tables: Any, tmp_path: Path) -> None:
    function = reward(trivial, lane="thread", cache=tmp_path)
    dispatchers = [Dispatcher([function])]
    for first in range(0, SAMPLES, 2048):  # no more at a time than are written
        dispatchers[0].score(completions=TEXTS[first : first + 2048])

    def fresh() -> None:
        dispatchers[0].close()
        dispatchers[0] = Dispatcher([function])
        dispatchers[0].score(completions=["x"])

    def run() -> None:
        dispatchers[0].score(completions=TEXTS)

    measure(benchmark, tables, "cache, all hits in the folder", run, fresh)
    dispatchers[0].close()


@pytest.mark.parametrize("kind", ["without", "pure", "cache"])
def test_nothing_is_kept(benchmark: Any, tables: Any, tmp_path: Path, kind: str) -> None:
    options: dict[str, Any] = {"without": {}, "pure": {"pure": True}, "cache": {"cache": tmp_path}}[kind]
    names = {"without": "neither option", "pure": "`pure=True`, all different", "cache": "cache, no hits"}
    numbers = itertools.count()
    texts: list[list[str]] = []
    with Dispatcher([reward(trivial, lane="thread", **options)]) as dispatcher:

        def other() -> None:
            number = next(numbers)
            texts[:] = [[f"{number:08d}" + text[8:] for text in TEXTS]]

        measure(benchmark, tables, names[kind], lambda: dispatcher.score(completions=texts[0]), other)

"""Unit costs of an engine's parts by the length of a text, for docs/internals/scale.md.

    python -m pytest benches/python/bench_scale.py --benchmark-only

CPU time of a call, not wall time: of the caller's thread, of the other threads of its process, of
child processes (workers, or the mock judge), and of the journal's writer, which keeps texts. Texts
are random words, since one letter repeated would be compressed for nothing.
"""

from __future__ import annotations

import os
import random
import resource
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from benches.python.bench_journal import wait_for_rows, writers_cpu
from benches.python.mock_judge import mock_judge
from guerdon import Dispatcher, Journal, Limit, judge, reward
from tests.http.server import chat_completion, serving

SAMPLES, ROUNDS, WORKERS = 2048, 12, 2
TITLE = "unit costs, µs of CPU a call"

pytestmark = pytest.mark.timeout(600)


def trivial(completion: str) -> float:
    return 1.0


@contextmanager
def functions(name: str, in_short: bool) -> Iterator[Any]:
    """The function; for a run that measures nothing its judge is in this process."""
    if name == "process":
        yield reward(trivial)
        return
    options: dict[str, Any] = {"model": "mock", "prompt": "[[score 1]] {completion}", "pure": False}
    here = serving(lambda path, body: chat_completion("Score: 1"))
    with here if in_short else mock_judge("--latency", "fixed:0.05") as server:
        yield judge(base_url=f"{server.url}/v1", limit=Limit(concurrency=256), **options)


def cpu(who: int) -> float:
    used = resource.getrusage(who)
    return used.ru_utime + used.ru_stime


def children_cpu() -> float:
    """Seconds of CPU of the processes below this one."""
    used = 0.0
    for pid in descendants(os.getpid()):
        for task in Path(f"/proc/{pid}/task").iterdir():
            used += int((task / "schedstat").read_text().split()[0]) / 1e9
    return used


def descendants(pid: int) -> Iterator[int]:
    for task in Path(f"/proc/{pid}/task").iterdir():
        for child in map(int, (task / "children").read_text().split()):
            yield child
            yield from descendants(child)


@pytest.mark.parametrize("kib", [2, 32])
@pytest.mark.parametrize("name", ["process", "judge"])
def test_unit_costs(benchmark: Any, tables: Any, tmp_path: Path, name: str, kib: int) -> None:
    samples, rounds = (64, 1) if benchmark.disabled else (SAMPLES, ROUNDS)
    draw = random.Random(0)
    words = ["".join(draw.choices("etaoinshrdlu", k=draw.randint(2, 9))) for _ in range(4096)] + ["\n"] * 256
    texts = [" ".join(draw.choices(words, k=200 * kib))[: kib << 10] for _ in range(samples)]
    journal = Journal(tmp_path, texts=True)
    with (
        functions(name, benchmark.disabled) as function,
        Dispatcher([function], workers=WORKERS, journal=journal) as dispatcher,
    ):

        def used() -> list[float]:
            main, writer = time.thread_time(), writers_cpu()
            return [main, cpu(resource.RUSAGE_SELF) - main - writer, children_cpu(), writer]

        def score() -> None:
            before = used()
            dispatcher.score(completions=texts, num_generations=8)
            caller = time.thread_time()
            done.append(samples)
            wait_for_rows(dispatcher, sum(done))
            after = [caller, *used()[1:]]
            costs.append([(end - start) / samples * 1e6 for end, start in zip(after, before, strict=True)])

        done: list[int] = []
        costs: list[list[float]] = []
        score()
        costs.clear()
        benchmark.pedantic(score, rounds=rounds)
        if not benchmark.disabled:
            least = [min(column) for column in zip(*costs, strict=True)]
            cells = dict(zip(["caller", "engine's threads", "child processes", "journal"], least, strict=True))
            tables.add(TITLE, f"{name}, {kib} KiB", cells)

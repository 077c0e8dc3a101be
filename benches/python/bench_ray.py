"""Calls on the nodes of a Ray cluster, beside the local lane and beside Ray itself, all in one run.

    .venv-verl/bin/python -m pytest benches/python/bench_ray.py --benchmark-only

in the environment of `make test-ray`. The nodes are three raylets of this machine; the bench
measures the cost of distribution and whether work is spread, not the gain from more machines. Calls
wait instead of computing, because there are two cores.
"""

from __future__ import annotations

import heapq
import os
import random
import statistics
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Any

import psutil
import pytest

from guerdon import Dispatcher, Ray, reward

ray = pytest.importorskip("ray", reason="the environment of `make test-ray` has Ray")

SAMPLES = 4096
TEXTS = [f"{index:08d}" + "x" * 2040 for index in range(SAMPLES)]
CPUS = {"head": 2, "node-1": 2, "node-2": 4}
CHUNK = 64
PIECE = 96 << 10
Run = Callable[[list[str]], Any]
OVERHEAD = f"{SAMPLES} samples of 2 KB, trivial function, on Ray nodes: µs a sample"
WAITING = "1200 calls of 5 ms that wait, two workers a node: s"
MAKESPAN = "600 heavy-tailed calls that wait, nodes of 2, 2 and 4 workers: makespan ÷ bound"

pytestmark = pytest.mark.timeout(600)


@pytest.fixture(scope="module", autouse=True)
def cluster() -> Iterator[None]:
    """The nodes; in a test without timing the nodes of RAY_ADDRESS."""
    if "RAY_ADDRESS" in os.environ:
        ray.init(log_to_driver=False)
        yield
        ray.shutdown()
        return
    from ray.cluster_utils import Cluster

    head = {"num_cpus": CPUS["head"], "include_dashboard": False, "node_name": "head"}
    made = Cluster(initialize_head=True, head_node_args=head)
    for name in ("node-1", "node-2"):
        made.add_node(num_cpus=CPUS[name], node_name=name)
    ray.init(address=made.address, log_to_driver=False)
    yield
    ray.shutdown()
    made.shutdown()


def trivial(completion: str) -> float:
    return 1.0


def waits(completion: str, seconds: float) -> float:
    time.sleep(seconds)
    return 1.0


class Actor:
    def call(self, text: str) -> float:
        return trivial(text)

    def calls(self, texts: list[str]) -> list[float]:
        return [trivial(text) for text in texts]

    def take(self, *pieces: bytes) -> None:
        pass


@contextmanager
def dispatched(**options: Any) -> Iterator[Run]:
    with Dispatcher([reward(trivial)], workers=2, **options) as dispatcher:
        yield lambda texts: dispatcher.score(completions=texts).rewards.ravel().tolist()


@contextmanager
def tasks() -> Iterator[Run]:
    task = ray.remote(num_cpus=1)(trivial)
    yield lambda texts: ray.get([task.remote(text) for text in texts])


@contextmanager
def actors(chunk: int) -> Iterator[Run]:
    made = [ray.remote(num_cpus=1, scheduling_strategy="SPREAD")(Actor).remote() for _ in range(3)]

    def run(texts: list[str]) -> list[float]:
        if chunk == 1:
            found: list[float] = ray.get([made[index % 3].call.remote(text) for index, text in enumerate(texts)])
            return found
        chunks = [texts[start : start + chunk] for start in range(0, len(texts), chunk)]
        answers = ray.get([made[index % 3].calls.remote(part) for index, part in enumerate(chunks)])
        return [value for values in answers for value in values]

    yield run
    for actor in made:
        ray.kill(actor)


@contextmanager
def carried() -> Iterator[Run]:
    """The texts alone, as the lane sends them: in pieces that Ray sends along with a call."""
    made = [ray.remote(num_cpus=1, scheduling_strategy="SPREAD")(Actor).remote() for _ in range(3)]

    def run(texts: list[str]) -> list[float]:
        data = "".join(texts).encode()
        pieces = [data[start : start + PIECE] for start in range(0, len(data), PIECE)]
        messages = [pieces[start : start + 10] for start in range(0, len(pieces), 10)]
        ray.get([made[index % 3].take.remote(*message) for index, message in enumerate(messages)])
        return [1.0] * len(texts)

    yield run
    for actor in made:
        ray.kill(actor)


def cpu_seconds() -> float:
    """CPU time of this process and its descendants, including Ray's processes."""
    total = 0.0
    for process in (psutil.Process(), *psutil.Process().children(recursive=True)):
        with suppress(psutil.Error):  # it has ended
            times = process.cpu_times()
            total += times.user + times.system
    return total


CONTENDERS: list[tuple[str, Callable[[], Any], int, str]] = [
    ("guerdon, process lane of this machine", dispatched, 30, ""),
    ("guerdon, three Ray nodes", lambda: dispatched(cluster=Ray(cpus_per_node=1)), 30, "≤ 10 more than the local lane"),
    ("Ray actors, three, the texts alone, 1 MB a call: the bound", carried, 10, ""),
    ("Ray actors, three, chunks of 64", lambda: actors(CHUNK), 10, ""),
    ("Ray actors, three, a call a sample", lambda: actors(1), 3, ""),
    ("Ray tasks, a call a sample", tasks, 3, ""),
]


@pytest.mark.parametrize("contender", CONTENDERS, ids=[name for name, *_ in CONTENDERS])
def test_trivial_function(benchmark: Any, tables: Any, contender: Any) -> None:
    name, start, rounds, target = contender
    benchmark.group = OVERHEAD
    texts = TEXTS[:256] if benchmark.disabled else TEXTS
    with start() as run:
        for _ in range(1 if benchmark.disabled else 3):
            run(texts)
        before = cpu_seconds()
        result = benchmark.pedantic(run, args=(texts,), rounds=rounds)
        spent = cpu_seconds() - before
    assert len(result) == len(texts)
    if benchmark.disabled:
        return
    times = {"best": benchmark.stats.stats.min, "median": benchmark.stats.stats.median}
    cells = {which: seconds * 1e6 / SAMPLES for which, seconds in times.items()}
    known = tables.rows.get(OVERHEAD)
    cells["median over the local lane"] = cells["median"] - (known[0].cells["median"] if known else cells["median"])
    cells["CPU time"] = spent * 1e6 / SAMPLES / rounds
    tables.add(OVERHEAD, name, cells, target)


@pytest.mark.parametrize("nodes", [1, 3])
def test_three_nodes_beside_one(benchmark: Any, tables: Any, nodes: int) -> None:
    benchmark.group = WAITING
    samples = 60 if benchmark.disabled else 1200
    seconds = [0.005] * samples
    with Dispatcher([reward(waits)], cluster=Ray(nodes=nodes, cpus_per_node=2)) as dispatcher:
        dispatcher.score(completions=TEXTS[:60], seconds=seconds[:60])
        benchmark.pedantic(
            lambda: dispatcher.score(completions=TEXTS[:samples], seconds=seconds),
            rounds=1 if benchmark.disabled else 5,
        )
    if benchmark.disabled:
        return
    median = benchmark.stats.stats.median
    known = tables.rows.get(WAITING)
    cells = {"median": median, "times one node's": known[0].cells["median"] / median if known else 1.0}
    tables.add(WAITING, f"{nodes} node{'s' * (nodes > 1)}", cells, "≥ 2.8 times" * (nodes > 1))


def bound(seconds: list[float]) -> float:
    """The least time that these calls can take."""
    return max(sum(seconds) / sum(CPUS.values()), max(seconds))


def one_queue(seconds: list[float]) -> float:
    """The time of these calls if each worker gets the next one without delay, in order."""
    free = [0.0] * sum(CPUS.values())
    for one in seconds:
        heapq.heapreplace(free, free[0] + one)
    return max(free)


@pytest.fixture(scope="module")
def unequal() -> Iterator[Dispatcher]:
    with Dispatcher([reward(waits)], cluster=Ray()) as dispatcher:
        yield dispatcher


@pytest.mark.parametrize("seed", [1, 2, 3])
def test_makespan_over_unequal_nodes(benchmark: Any, tables: Any, unequal: Dispatcher, seed: int) -> None:
    benchmark.group = MAKESPAN
    draw = random.Random(seed)
    samples = 60 if benchmark.disabled else 600
    seconds = [min(0.002 + 0.004 * draw.paretovariate(1.5), 1.0) for _ in range(samples)]
    unequal.score(completions=TEXTS[:60], seconds=[0.001] * 60)
    ran: list[list[float]] = []

    def turn() -> None:
        ran.append(unequal.score(completions=TEXTS[:samples], seconds=seconds).run_s.ravel().tolist())

    benchmark.pedantic(turn, rounds=1 if benchmark.disabled else 5)
    if benchmark.disabled:
        return
    # Relative to the requested times, and to the measured ones: calls wake up late on a busy
    # machine.
    asked = [time / bound(seconds) for time in benchmark.stats.stats.data]
    took = [time / bound(calls) for time, calls in zip(benchmark.stats.stats.data, ran, strict=True)]
    cells = {
        "best": min(took),
        "median": statistics.median(took),
        "one queue": one_queue(seconds) / bound(seconds),
        "best, of the times asked for": min(asked),
    }
    tables.add(MAKESPAN, f"seed {seed}", cells, "≤ 1.05")

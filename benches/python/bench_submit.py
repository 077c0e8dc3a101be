"""Time that the trainer's thread takes to submit 2048 samples of 64 KB, compared with pickling
them; 2048 conversations, for one function of the process lane and for four; and the longest pause
of another thread while a million samples are submitted.

    python -m pytest benches/python/bench_submit.py --benchmark-only

Timed is `Dispatcher.submit` alone; the batch is waited for between the rounds. Target: below 10 ms.
"""

from __future__ import annotations

import pickle
import statistics
import threading
import time
from typing import Any, Self

import pytest

from guerdon import Dispatcher, Status, reward

SAMPLES = 2048
SIZE = 64 * 1024
ROUNDS = 15
TITLE = f"{SAMPLES} samples of 64 KB: ms on the caller's thread"
TEXTS = {
    "ASCII": [f"{index:08d}" + "x" * (SIZE - 8) for index in range(SAMPLES)],
    "two bytes a character": [f"{index:08d}" + "漢" * (SIZE // 2 - 8) for index in range(SAMPLES)],
}

pytestmark = pytest.mark.timeout(600)


def trivial(completion: str) -> float:
    return 1.0


@pytest.mark.parametrize("kind", TEXTS)
def test_submit(benchmark: Any, tables: Any, kind: str) -> None:
    benchmark.group = TITLE
    texts = TEXTS[kind]
    busy: list[float] = []
    whole: list[float] = []
    pending: list[Any] = []

    def submit() -> None:
        busy.append(time.thread_time())
        pending.append(dispatcher.submit(completions=texts))
        busy[-1] = time.thread_time() - busy[-1]

    def finish() -> None:
        if pending:
            result = pending.pop().result()
            assert result.status.max() == Status.OK
            whole.append(result.elapsed_s)

    with Dispatcher([reward(trivial)], workers=2) as dispatcher:
        submit()
        finish()
        busy.clear()
        benchmark.pedantic(submit, setup=finish, rounds=ROUNDS)
        finish()
    if benchmark.disabled:
        return
    stats = benchmark.stats.stats
    cells = {"median": stats.median, "max": stats.max, "CPU, median": statistics.median(busy)}
    tables.add(TITLE, f"guerdon submit, {kind}", {k: v * 1e3 for k, v in cells.items()}, "< 10")
    benchmark.extra_info["the whole batch, s"] = statistics.median(whole)


@pytest.mark.parametrize("kind", TEXTS)
def test_pickle(benchmark: Any, tables: Any, kind: str) -> None:
    """Times the work of a process pool on the same texts before any call can run, 64 at a time."""
    benchmark.group = TITLE
    texts = TEXTS[kind]

    def dump() -> int:
        return sum(len(pickle.dumps(texts[first : first + 64], protocol=5)) for first in range(0, SAMPLES, 64))

    benchmark.pedantic(dump, rounds=ROUNDS, warmup_rounds=1)
    if not benchmark.disabled:
        stats = benchmark.stats.stats
        tables.add(TITLE, f"pickle, {kind}", {"median": stats.median * 1e3, "max": stats.max * 1e3})


CONVERSATIONS = [
    [{"role": "user", "content": f"{index:08d}" * 8}, {"role": "assistant", "content": f"{index:08d}" * 128}]
    for index in range(SAMPLES)
]
SHARED = f"{SAMPLES} conversations: ms on the caller's thread"


@pytest.mark.parametrize("functions", [1, 4])
def test_conversations(benchmark: Any, tables: Any, functions: int) -> None:
    """Values for several functions are pickled once."""
    benchmark.group = SHARED
    pending: list[Any] = []

    def submit() -> None:
        pending.append(dispatcher.submit(completions=CONVERSATIONS))

    def finish() -> None:
        if pending:
            assert pending.pop().result().status.max() == Status.OK

    rewards = [reward(trivial, name=f"trivial {number}") for number in range(functions)]
    with Dispatcher(rewards, workers=2) as dispatcher:
        submit()
        finish()
        benchmark.pedantic(submit, setup=finish, rounds=ROUNDS)
        finish()
    if not benchmark.disabled:
        stats = benchmark.stats.stats
        cells = {"median": stats.median * 1e3, "max": stats.max * 1e3}
        tables.add(SHARED, f"guerdon submit, {functions} functions", cells, "as for one" * (functions > 1))


STANDSTILL = "1,000,000 samples, 4 functions: the longest time that another thread stands, ms"


class Ticker:
    """A thread that does next to nothing, and the longest time between two of its turns."""

    def __enter__(self) -> Self:
        self.longest_s = 0.0
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._run)
        self._thread.start()
        return self

    def _run(self) -> None:
        last = time.perf_counter()
        while not self._ended.is_set():
            time.sleep(0.0002)
            now = time.perf_counter()
            self.longest_s, last = max(self.longest_s, now - last), now

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        self._thread.join()


def copied(texts: list[str]) -> object:
    """The bound: Python code that makes as many objects and gives way as Python code does."""
    return [[text for text in texts] for _ in range(4)]  # noqa: C416 - in steps, as Python code runs


@pytest.mark.parametrize("who", ["guerdon submit", "list comprehensions"])
def test_others_run_during_submit(benchmark: Any, tables: Any, who: str) -> None:
    benchmark.group = STANDSTILL
    texts = [str(index) for index in range(10_000 if benchmark.disabled else 1_000_000)]
    rewards = [reward(trivial, name=f"trivial {number}", lane="thread") for number in range(4)]
    standstills_s: list[float] = []

    with Dispatcher(rewards) as dispatcher:
        dispatcher.score(completions=texts[:100])

        def round_() -> None:
            pending = None
            with Ticker() as ticker:
                if who == "guerdon submit":
                    pending = dispatcher.submit(completions=texts)
                else:
                    copied(texts)
            standstills_s.append(ticker.longest_s)
            if pending is not None:
                pending.cancel()
                pending.result()

        benchmark.pedantic(round_, rounds=5)
    if not benchmark.disabled:
        cells = {"median": statistics.median(standstills_s) * 1e3, "max": max(standstills_s) * 1e3}
        tables.add(STANDSTILL, who, cells, "< 10" if who == "guerdon submit" else "")

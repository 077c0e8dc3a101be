"""5276 real solutions of GSM8K questions: a loop, a process pool, and the process lane with each
sample killable.

    python -m pytest benches/python/bench_gsm8k.py --benchmark-only

The target on two cores is 0.6 of the loop's time for math_verify, a few milliseconds a sample. A
machine that is busy with other things shows less, but then also for the pool, which can kill
nothing. The last-line comparison, a microsecond a sample, shows the cost of sending samples to
another process without need.
"""

from __future__ import annotations

import multiprocessing
from concurrent.futures import ProcessPoolExecutor
from typing import Any

import pytest

from guerdon import Dispatcher, reward
from guerdon._system.cpu_count import default_workers
from tests.shared_data import gsm8k_solutions

math_verify = pytest.importorskip("math_verify")


def last_line(text: str) -> str | None:
    last = text.rstrip().rpartition("\n")[2]
    return last[2:].replace(",", "").strip() if last.startswith("A:") else None


def same_last_line(completion: str, reference: str) -> float:
    return float(last_line(completion) == last_line(reference))


def verified(completion: str, reference: str) -> float:
    from math_verify import parse, verify

    return float(verify(parse(reference), parse(completion)))


FUNCTIONS = [same_last_line, verified]


@pytest.fixture(scope="module")
def columns() -> dict[str, list[Any]]:
    rows = gsm8k_solutions()
    return {"completions": [row["completion"] for row in rows], "reference": [row["reference"] for row in rows]}


@pytest.mark.parametrize("function", FUNCTIONS, ids=lambda function: function.__name__)
class TestGsm8k:
    def test_loop(self, benchmark: Any, columns: dict[str, list[Any]], function: Any) -> None:
        benchmark.group = f"gsm8k {function.__name__}"

        def loop() -> list[float]:
            return [function(*row) for row in zip(columns["completions"], columns["reference"], strict=True)]

        rounds = 1 if function is verified else 5
        assert len(benchmark.pedantic(loop, rounds=rounds, warmup_rounds=rounds > 1)) == 5276

    def test_process_pool(self, benchmark: Any, columns: dict[str, list[Any]], function: Any) -> None:
        benchmark.group = f"gsm8k {function.__name__}"
        texts, references = columns["completions"], columns["reference"]
        with ProcessPoolExecutor(default_workers(), mp_context=multiprocessing.get_context("forkserver")) as pool:
            # workers started, modules imported
            list(pool.map(function, texts[:256], references[:256], chunksize=64))
            rounds = 2 if function is verified else 5
            values = benchmark.pedantic(
                lambda: list(pool.map(function, texts, references, chunksize=64)), rounds=rounds
            )
        assert len(values) == 5276

    def test_process_lane(self, benchmark: Any, columns: dict[str, list[Any]], function: Any) -> None:
        benchmark.group = f"gsm8k {function.__name__}"
        with Dispatcher([reward(function, timeout=5)]) as dispatcher:
            dispatcher.score(**{name: values[:256] for name, values in columns.items()})
            rounds = 2 if function is verified else 5
            result = benchmark.pedantic(dispatcher.score, kwargs=columns, rounds=rounds)
            assert not result.failures()
            benchmark.extra_info["workers"] = dispatcher.workers

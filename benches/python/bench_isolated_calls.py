"""`isolation="call"` on all cores, compared with forks that do nothing.

    python -m pytest benches/python/bench_isolated_calls.py --benchmark-only

The function's module imports torch. The peer is a bare program that has imported it too and, with
as many processes as there are cores and two children of each at a time, does nothing but fork
children that end at once. On a quiet machine no lane makes more calls a second.
"""

from __future__ import annotations

import os
import statistics
import subprocess
import sys
import time
from typing import Any

import pytest

from benches.python import with_torch
from guerdon import Dispatcher, reward
from guerdon._system.cpu_count import usable_cores

ROUNDS = 6
CALLS = 80
TITLE = "isolation='call', the module imports torch: calls a second, all cores"

FORKS = """
import os, sys, time
import torch
parents, calls = int(sys.argv[1]), int(sys.argv[2])
torch.set_num_threads(1)
for line in sys.stdin:
    start = time.perf_counter()
    parts = []
    for _ in range(parents):
        if (pid := os.fork()) == 0:
            for index in range(calls // parents):
                if os.fork() == 0:
                    os._exit(0)
                if index > 0:
                    os.wait()
            os.wait()
            os._exit(0)
        parts.append(pid)
    for pid in parts:
        os.waitpid(pid, 0)
    print(calls / (time.perf_counter() - start), flush=True)
"""

pytestmark = pytest.mark.timeout(600)


def test_isolated_calls(benchmark: Any, tables: Any) -> None:
    cores = usable_cores()
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    command = [sys.executable, "-c", FORKS, str(cores), str(CALLS)]
    rates: dict[str, list[float]] = {"guerdon": [], "bare forks": []}
    with (
        subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment) as forks,
        Dispatcher([reward(with_torch.first, isolation="call")], workers=cores) as dispatcher,
    ):
        assert forks.stdin is not None
        assert forks.stdout is not None
        stdin, stdout = forks.stdin, forks.stdout

        def one_round() -> None:
            stdin.write("\n")
            stdin.flush()
            rates["bare forks"].append(float(stdout.readline()))
            start = time.perf_counter()
            result = dispatcher.score(completions=["x"] * CALLS)
            rates["guerdon"].append(CALLS / (time.perf_counter() - start))
            assert not result.failures()

        one_round()
        for found in rates.values():
            found.clear()
        benchmark.pedantic(one_round, rounds=ROUNDS)
        stdin.close()
    share = statistics.median(mine / peer for mine, peer in zip(rates["guerdon"], rates["bare forks"], strict=True))
    for name, found in rates.items():
        tables.add(TITLE, name, {"median": statistics.median(found), "of bare forks, %": 100 * share})

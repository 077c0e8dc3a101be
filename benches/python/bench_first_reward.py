"""Time to the first reward: from making a dispatcher to the result of its first sample.

    python -m pytest benches/python/bench_first_reward.py --benchmark-only

The function's module imports nothing, sympy and math_verify, or torch; the zygote loads it again
each time, whatever this process has loaded. Compared with a bare interpreter that imports the same
module and ends.
"""

from __future__ import annotations

import subprocess
import sys
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest

from guerdon import Dispatcher, reward

ROOT = Path(__file__).parents[2]
ROUNDS = 10
WORKERS = 2
TITLE = "time to the first reward: ms"
# By imports: the module, its function, the packages that must be installed.
MODULES = {
    "nothing": ("benches.python.workloads", "trivial", ()),
    "sympy and math_verify": ("benches.python.with_sympy", "first", ("sympy", "math_verify")),
    "torch": ("benches.python.with_torch", "first", ("torch",)),
}

pytestmark = pytest.mark.timeout(600)


@pytest.mark.parametrize("imports", MODULES)
def test_first_reward(benchmark: Any, tables: Any, imports: str) -> None:
    module, name, needed = MODULES[imports]
    for package in needed:
        pytest.importorskip(package)
    function = getattr(import_module(module), name)

    def first() -> float:
        with Dispatcher([reward(function)], workers=WORKERS) as dispatcher:
            value = dispatcher.score(completions=["x"]).rewards[0, 0, 0]
            if not benchmark.disabled:
                times.append(clock() - start[0])
            return float(value)

    from time import monotonic as clock

    times: list[float] = []
    start = [0.0]

    def begin() -> None:
        start[0] = clock()

    # The end of the dispatcher is not part of it.
    assert benchmark.pedantic(first, setup=begin, rounds=ROUNDS) == 1.0
    if not benchmark.disabled:
        times.sort()
        cells = {"best": times[0] * 1e3, "median": times[len(times) // 2] * 1e3}
        tables.add(TITLE, f"guerdon, a module that imports {imports}", cells)


@pytest.mark.parametrize("imports", MODULES)
def test_bare_import(benchmark: Any, tables: Any, imports: str) -> None:
    module, _, needed = MODULES[imports]
    for package in needed:
        pytest.importorskip(package)
    command = [sys.executable, "-c", f"import {module}"]
    benchmark.pedantic(lambda: subprocess.run(command, cwd=ROOT, check=True), rounds=ROUNDS)
    if not benchmark.disabled:
        stats = benchmark.stats.stats
        cells = {"best": stats.min * 1e3, "median": stats.median * 1e3}
        tables.add(TITLE, f"(an interpreter that imports {imports} and ends)", cells)

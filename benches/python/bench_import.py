"""Cost of ``import guerdon`` in a fresh interpreter.

    python -m pytest benches/python/bench_import.py --benchmark-only

Timed is the import statement, by the fresh interpreter itself. Target: below 50 ms.
"""

from __future__ import annotations

import statistics
import subprocess
import sys
from typing import Any

import pytest

ROUNDS = 20
TITLE = "import: ms"
STATEMENTS = {
    "import guerdon": "< 50",
    "import guerdon; guerdon.Dispatcher": "≤ 60",
    "from guerdon import Dispatcher, Limit, StatefulReward, group_reward, reward": "",
    "import asyncio": "",
    "import numpy": "",
}
PROGRAM = """
import time
started = time.perf_counter()
{statement}
print(time.perf_counter() - started)
"""


@pytest.mark.parametrize("statement", STATEMENTS)
def test_import(benchmark: Any, tables: Any, statement: str) -> None:
    benchmark.group = TITLE
    times: list[float] = []

    def fresh() -> None:
        command = [sys.executable, "-c", PROGRAM.format(statement=statement)]
        times.append(float(subprocess.run(command, capture_output=True, text=True, check=True).stdout))

    benchmark.pedantic(fresh, rounds=ROUNDS, warmup_rounds=0 if benchmark.disabled else 2)
    if not benchmark.disabled:
        cells = {"best": min(times), "median": statistics.median(times), "max": max(times)}
        tables.add(TITLE, f"`{statement}`", {k: v * 1e3 for k, v in cells.items()}, STATEMENTS[statement])
        benchmark.extra_info.update(cells)

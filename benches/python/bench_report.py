"""`guerdon report` on a journal of a million rows, and pandas that reads it and takes one mean.

    python -m pytest benches/python/bench_report.py --benchmark-only -s
    GUERDON_BENCH_ROWS=10000000 python -m pytest benches/python/bench_report.py --benchmark-only -s

Timed is the whole command in a separate process, including writing the page. Target: below 20 s, a
page below 3 MB. pandas reads the columns that the report reads but reasons and times, and groups
once.
"""

from __future__ import annotations

import os
import statistics
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from tests.journal_files import many_rows, write_part

ROWS = int(os.environ.get("GUERDON_BENCH_ROWS", "1000000"))
ROUNDS = 3
TITLE = f"a journal of {ROWS:,} rows: s, MB"
PEER = """
import sys, pandas, resource
frame = pandas.read_parquet(sys.argv[1], columns=["function", "step", "batch", "rank", "group", "sample", "reward", "status", "cost"])
print(frame.groupby(["function", "step"], observed=True)["reward"].agg(["mean", "std"]).shape, file=sys.stderr)
print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024)
"""
OURS = """
import sys, resource
from guerdon.cli import main
assert main(["report", sys.argv[1], "-o", sys.argv[2], "-q"]) == 0
print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024)
"""


@pytest.fixture(scope="module")
def journal(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("journal")
    timed = not request.config.getoption("benchmark_disable")
    for part, rows in enumerate(many_rows(ROWS if timed else 20_000)):
        write_part(folder, rows, part=part)
    return folder


@pytest.mark.parametrize("program", ["guerdon report", "pandas, one mean"])
def test_report(benchmark: Any, tables: Any, journal: Path, tmp_path: Path, program: str) -> None:
    benchmark.group = TITLE
    out = tmp_path / "report.html"
    ours = program == "guerdon report"
    times: list[float] = []
    memory: list[float] = []

    def run() -> None:
        started = time.perf_counter()
        command = [sys.executable, "-c", OURS if ours else PEER, str(journal), str(out)]
        ended = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True)
        times.append(time.perf_counter() - started)
        memory.append(float(ended.stdout))

    benchmark.pedantic(run, rounds=ROUNDS if ROWS <= 1_000_000 else 1)
    page = out.stat().st_size / 1e6 if ours else float("nan")
    assert not ours or page < 3
    if not benchmark.disabled:
        cells = {"best": min(times), "median": statistics.median(times), "memory": max(memory), "page": page}
        tables.add(TITLE, program, cells, "< 20 s, < 3 MB" if ours else "")
        benchmark.extra_info.update(cells)

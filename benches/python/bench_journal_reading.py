"""`guerdon.read_journal` on a large journal: seconds and memory of each way to read it.

    GUERDON_BENCH_ROWS=10000000 python -m pytest benches/python/bench_journal_reading.py

Each way runs in a separate process: timed is the reading alone, memory is the process at its
largest. The peer reads all of it with `pyarrow.parquet.read_table`. Target: batches need less than
a fifth of its memory.
"""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from tests.journal_files import many_rows, write_part

ROWS = int(os.environ.get("GUERDON_BENCH_ROWS", "1000000"))
ROUNDS = 3
TITLE = f"reading a journal of {ROWS:,} rows: s, MiB"
WAYS = {
    "all": "read_journal(folder)",
    "three columns": "read_journal(folder, columns=['step', 'function', 'reward'])",
    "ten steps": "read_journal(folder, filters=[('step', '>=', 100), ('step', '<', 110)])",
    "batches": "read_journal(folder, batches=True)",
    "batches, three columns": "read_journal(folder, columns=['step', 'function', 'reward'], batches=True)",
    "pyarrow, all": "pyarrow.parquet.read_table(folder)",
}
PROGRAM = """
import json, sys, time
import pyarrow.dataset, pyarrow.parquet
from guerdon import read_journal

folder = sys.argv[1]
started = time.perf_counter()
found = {way}
rows = sum(each.num_rows for each in found) if isinstance(found, pyarrow.RecordBatchReader) else found.num_rows
seconds = time.perf_counter() - started
[peak] = [line.split()[1] for line in open("/proc/self/status") if line.startswith("VmHWM")]
print(json.dumps([rows, seconds, int(peak) / 1024]))
"""


@pytest.fixture(scope="module")
def journal(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Parts as the writer makes them: row groups of 131,072 rows."""
    folder = tmp_path_factory.mktemp("journal")
    timed = not request.config.getoption("benchmark_disable")
    for part, rows in enumerate(many_rows(ROWS if timed else 20_000, chunk=1 << 20)):
        path = write_part(folder, rows.slice(0, 0), part=part)
        pq.write_table(rows, path, compression="zstd", row_group_size=1 << 17)
    return folder


@pytest.mark.parametrize("way", WAYS)
def test_reading(benchmark: Any, tables: Any, journal: Path, way: str) -> None:
    benchmark.group = TITLE
    times: list[float] = []
    memory: list[float] = []

    def run() -> None:
        command = [sys.executable, "-c", PROGRAM.replace("{way}", WAYS[way]), str(journal)]
        ended = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True)
        rows, seconds, peak = json.loads(ended.stdout)
        assert rows > 0 or way == "ten steps"
        times.append(seconds)
        memory.append(peak)

    benchmark.pedantic(run, rounds=1 if benchmark.disabled else ROUNDS)
    if not benchmark.disabled:
        cells = {"best": min(times), "median": statistics.median(times), "memory": max(memory)}
        tables.add(TITLE, way, cells, "")
        benchmark.extra_info.update(cells)

"""A shared allowance: how much of it is used, and how many answers say "too many".

    python -m pytest benches/python/bench_rate_limit.py --benchmark-only

A server allows 100 requests in any 3 s; one process, and four that share a key, have 1000 queued.
Counted from the third window on. The peers do without a shared limit: asyncio with a semaphore in
each process, tries again after Retry-After. Targets: at most 2 % of answers are 429, at least 95 %
of the allowance is used.
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.limits.server import Window, serving

ROOT = Path(__file__).parents[2]
MOST, SECONDS = 100, 3.0
CALLS = 1000
TITLE = f"{MOST} requests in any {SECONDS:g} s, {CALLS} queued: %"

pytestmark = pytest.mark.timeout(600)


def run(processes: int, what: str, url: str, calls: int) -> None:
    command = [sys.executable, "-m", "tests.limits.one_of_many", what, url, str(calls), str(MOST / SECONDS * 60)]
    started = [
        subprocess.Popen(command, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        for _ in range(processes)
    ]
    try:
        for process in started:
            assert process.stdout is not None
            assert process.stdout.readline() == "ready\n"
        for process in started:
            assert process.stdin is not None
            process.stdin.write("go\n")
            process.stdin.flush()
        for process in started:
            report = json.loads(process.communicate(timeout=500)[0])
            assert report["ok"] == calls, "samples were lost"
    finally:
        for process in started:
            process.kill()
            process.communicate()


@pytest.mark.parametrize("processes", [1, 4])
@pytest.mark.parametrize("what", ["asyncio", "alone"])
def test_an_allowance(
    benchmark: Any, tables: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, what: str, processes: int
) -> None:
    monkeypatch.setenv("GUERDON_LIMITS_DIR", str(tmp_path / "limits"))
    calls = (20 if benchmark.disabled else CALLS) // processes
    window = Window(MOST, SECONDS)
    with serving(window) as url:
        benchmark.pedantic(lambda: run(processes, what, url, calls), rounds=1)
    assert len(window.answered) == calls * processes
    if not benchmark.disabled:
        answers, refusals, seconds = window.after(2)
        cells = {
            "used": answers / (seconds / SECONDS * MOST) * 100,
            "answers that are 429": refusals / (answers + refusals) * 100,
        }
        name = "guerdon" if what == "asyncio" else "asyncio, 16 at a time, Retry-After"
        target = "used ≥ 95, 429 ≤ 2" if what == "asyncio" else ""
        tables.add(TITLE, f"{name}, {processes} process{'es' * (processes > 1)}", cells, target)

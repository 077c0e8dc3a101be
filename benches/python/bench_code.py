"""Small programs a second: code rewards behind fences, compared with common alternatives.

    python -m pytest benches/python/bench_code.py --benchmark-only

All of them run the same programs with the same tests on all cores, in turns. The peers are those
that people use: a subprocess for each program and its tests in one file (exit status as the score),
`ProcessPoolExecutor` with ``exec`` (no isolation at all, and a hang takes the worker), and, where
it runs, bubblewrap around the subprocess.
"""

from __future__ import annotations

import shutil
import statistics
import subprocess
import sys
import time
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor
from functools import partial
from typing import Any

import pytest

from guerdon import Dispatcher, RegistrationError, code_reward
from guerdon._system.cpu_count import usable_cores

ROUNDS = 5
PROGRAMS = 200
HANGS = 30
TITLE = "code rewards: small programs a second, all cores"
KILLS = "code rewards: from the timeout of a hanging program to its end"

TEST = "assert sorted_words('b a') == ['a', 'b']\nassert sorted_words('') == []"
SOURCES = [
    f"def sorted_words(text, key={number}):\n    words = text.split()\n    words.sort()\n    return words\n"
    for number in range(PROGRAMS)
]
BUBBLEWRAP = ["bwrap", "--unshare-all", "--die-with-parent", "--ro-bind", "/", "/", "--proc", "/proc", "--dev", "/dev"]

pytestmark = pytest.mark.timeout(600)


def in_subprocess(before: list[str], source: str) -> float:
    command = [*before, sys.executable, "-c", f"{source}\n{TEST}"]
    return float(subprocess.run(command, capture_output=True, timeout=10).returncode == 0)


def in_worker(source: str) -> float:
    names: dict[str, Any] = {}
    exec(f"{source}\n{TEST}", names)
    return 1.0


def bubblewrap_runs() -> bool:
    try:
        return shutil.which("bwrap") is not None and in_subprocess(BUBBLEWRAP, "sorted_words = str.split") >= 0.0
    except (OSError, subprocess.TimeoutExpired):
        return False


def test_small_programs(benchmark: Any, tables: Any) -> None:
    cores = usable_cores()
    made = {"guerdon, strict": code_reward(check="test", extract="whole")}
    made["guerdon, no fences"] = code_reward(check="test", extract="whole", isolation="none", name="unfenced")
    commands: dict[str, list[str]] = {"subprocess": []}
    if bubblewrap_runs():
        commands["bubblewrap"] = BUBBLEWRAP
    columns = {"completions": SOURCES, "test": [TEST] * PROGRAMS}
    rates: dict[str, list[float]] = {}
    with ProcessPoolExecutor(cores) as pool, ThreadPoolExecutor(cores) as threads:
        dispatchers = {name: Dispatcher([one], workers=cores) for name, one in made.items()}
        ways: dict[str, Any] = {
            name: partial(lambda one: one.score(**columns).rewards.ravel().tolist(), one)
            for name, one in dispatchers.items()
        }
        ways["ProcessPoolExecutor, exec"] = lambda: list(pool.map(in_worker, SOURCES))
        for name, before in commands.items():
            ways[name] = partial(lambda before: list(threads.map(partial(in_subprocess, before), SOURCES)), before)

        def one_round() -> None:
            for name, way in ways.items():
                start = time.perf_counter()
                assert way() == [1.0] * PROGRAMS
                rates.setdefault(name, []).append(PROGRAMS / (time.perf_counter() - start))

        one_round()
        rates.clear()
        benchmark.pedantic(one_round, rounds=ROUNDS)
        for one in dispatchers.values():
            one.close()
    for name, found in rates.items():
        tables.add(TITLE, name, {"median": statistics.median(found), "best": max(found)})


def test_kill_overshoot(benchmark: Any, tables: Any) -> None:
    timeout = 0.2
    late: list[float] = []
    try:
        code = code_reward(check="test", extract="whole", timeout=timeout)
    except RegistrationError as error:  # what is missing here
        pytest.skip(str(error))
    source = "import time\nstarted = time.time()\ndef sorted_words(text):\n    while True: pass"

    def one_round() -> None:
        for _ in range(HANGS):
            start = time.perf_counter()
            assert code(completions=[source], test=[TEST]) == [0.0]
            late.append(1000 * (time.perf_counter() - start - timeout))

    code(completions=[source], test=[TEST])
    benchmark.pedantic(one_round, rounds=ROUNDS)
    code.close()
    late.sort()
    tables.add(KILLS, "guerdon, strict", {"p50 ms": late[len(late) // 2], "p99 ms": late[int(len(late) * 0.99)]})

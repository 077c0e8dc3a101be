"""Workers that a dispatcher starts by itself, where no launcher is at work."""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys
from ctypes.util import find_library
from pathlib import Path

import pytest

from guerdon._system.cpu_count import default_workers, usable_cores


def test_a_process_alone_uses_the_cores_it_may_use() -> None:
    assert 1 <= usable_cores() <= len(os.sched_getaffinity(0))
    assert default_workers() == usable_cores()


def test_affinity_counts() -> None:
    core = min(os.sched_getaffinity(0))
    ended = subprocess.run(
        [sys.executable, "-c", "from guerdon._system.cpu_count import default_workers; print(default_workers())"],
        preexec_fn=lambda: os.sched_setaffinity(0, {core}),
        capture_output=True,
        text=True,
        check=True,
    )
    assert ended.stdout.strip() == "1"


# The main thread is bound to one core while `bind` runs; then a worker counts its cores.
BOUND = """
import os, threading, warnings
import guerdon

def cores(completion):
    return float(len(os.sched_getaffinity(0)))

if __name__ == "__main__":
    before = len(os.sched_getaffinity(0))
    {bind}
    assert len(os.sched_getaffinity(0)) == 1 < before
    with warnings.catch_warnings(record=True) as caught, guerdon.Dispatcher([guerdon.reward(cores)]) as dispatcher:
        seen = dispatcher.score(completions=["a"]).rewards.item()
        dispatcher.score(completions=["a"])
    print(seen == before == dispatcher.workers, len(os.sched_getaffinity(0)), *[str(one.message) for one in caught])
"""
ANOTHER_THREAD = """
    threading.Thread(target=threading.Event().wait, daemon=True).start()
    os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
"""


@pytest.fixture
def program(tmp_path: Path) -> Path:
    if len(os.sched_getaffinity(0)) == 1:
        pytest.skip("one core")
    return tmp_path / "bound.py"


def _run(program: Path, bind: str, **environ: str) -> str:
    program.write_text(BOUND.replace("{bind}", bind))
    command = [sys.executable, str(program)]
    ended = subprocess.run(command, capture_output=True, text=True, env={**os.environ, **environ}, timeout=60)
    assert ended.returncode == 0, ended.stderr
    return ended.stdout


def test_workers_have_the_cores_of_all_threads_where_the_main_thread_is_bound(program: Path) -> None:
    assert _run(program, ANOTHER_THREAD) == "True 1\n"


def test_workers_have_the_cores_that_openmp_binds_threads_over(program: Path) -> None:
    """With one warning, as the variable may have been meant for all of the process."""
    bound = _run(program, f"import ctypes; ctypes.CDLL({_openmp()!r})", OMP_PROC_BIND="close")
    assert bound.startswith("True 1 OMP_PROC_BIND bound this thread to 1 core of the ")
    assert bound.count("OMP_PROC_BIND") == 1


def _openmp() -> str:
    torch = importlib.util.find_spec("torch")
    folders = [] if torch is None else torch.submodule_search_locations or []
    found = [*(str(file) for folder in folders for file in Path(folder, "lib").glob("libgomp*")), find_library("gomp")]
    if found[0] is None:
        pytest.skip("no libgomp")
    return found[0]

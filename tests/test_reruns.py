"""What a run of these tests makes of a test that fails once, and of many."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.reruns import MOST

ROOT = Path(__file__).parents[1]

pytest.importorskip("pytest_rerunfailures")

CONFTEST = "from tests.reruns import register as pytest_configure\n"
# Fails as often as it is told to.
TESTS = """
import pytest
from pathlib import Path

@pytest.mark.parametrize("place", range({count}))
def test_it(place, request):
    seen = Path(request.config.rootpath, f"seen-{{place}}")
    times = len(seen.read_text()) if seen.exists() else 0
    seen.write_text("x" * (times + 1))
    assert times >= {failures}
"""


def run(folder: Path, count: int, failures: int, *arguments: str) -> subprocess.CompletedProcess[str]:
    """`count` tests that fail `failures` times each."""
    (folder / "conftest.py").write_text(CONFTEST)
    (folder / "test_them.py").write_text(TESTS.format(count=count, failures=failures))
    command = [sys.executable, "-m", "pytest", "--rootdir", str(folder), "-p", "no:cacheprovider", "-c", os.devnull]
    return subprocess.run(
        [*command, *arguments, str(folder)],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )


@pytest.mark.parametrize("processes", [(), ("--numprocesses", "2")], ids=["one_process", "two_processes"])
def test_a_test_that_fails_once_is_named_and_passes(tmp_path: Path, processes: tuple[str, ...]) -> None:
    ended = run(tmp_path, MOST, 1, "--reruns", "2", *processes)
    assert ended.returncode == 0, ended.stdout
    assert f"run again: {MOST} tests" in ended.stdout
    assert f"{MOST} passed, {MOST} rerun" in ended.stdout
    for place in range(MOST):
        assert f"\ntest_them.py::test_it[{place}]\n" in ended.stdout


def test_a_test_that_fails_each_time_fails(tmp_path: Path) -> None:
    ended = run(tmp_path, 1, 3, "--reruns", "2")
    assert ended.returncode == 1
    assert "1 failed, 2 rerun" in ended.stdout


@pytest.mark.parametrize("processes", [(), ("--numprocesses", "2")], ids=["one_process", "two_processes"])
def test_many_that_fail_once_fail_the_run(tmp_path: Path, processes: tuple[str, ...]) -> None:
    ended = run(tmp_path, MOST + 1, 1, "--reruns", "2", *processes)
    assert ended.returncode == 1, ended.stdout
    assert f"run again: {MOST + 1} tests, at most {MOST}" in ended.stdout


def test_without_the_option_no_test_is_run_again(tmp_path: Path) -> None:
    ended = run(tmp_path, 1, 1)
    assert ended.returncode == 1
    assert "1 failed" in ended.stdout
    assert "run again" not in ended.stdout

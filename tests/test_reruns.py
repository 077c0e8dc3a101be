"""A test that fails among others runs again, alone; many that fail do not."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.reruns import MOST

ROOT = Path(__file__).parents[1]
CONFTEST = "from tests.reruns import pytest_addoption, pytest_configure\n"
# Each fails as often as it is told to, and only where it stands.
TESTS = """
import pytest
from pathlib import Path

@pytest.fixture
def seen(request):
    path = Path(request.config.rootpath, f"seen-{{request.node.name}}")
    times = len(path.read_text()) if path.exists() else 0
    path.write_text("x" * (times + 1))
    if times < {failures} and "{stage}" == "setup":
        pytest.fail("seed 17 of the setup")
    yield times
    if times < {failures} and "{stage}" == "teardown":
        pytest.fail("seed 17 of the teardown")

@pytest.mark.parametrize("place", range({count}))
def test_it(place, seen):
    if seen < {failures} and "{stage}" == "call":
        pytest.fail("seed 17 of the call")

def test_other(request):
    Path(request.config.rootpath, "others").open("a").write("x")
"""


def run(folder: Path, count: int, failures: int, *arguments: str, stage: str = "call") -> tuple[int, list[str]]:
    """The exit status of `count` tests that fail `failures` times each, and the lines printed."""
    (folder / "conftest.py").write_text(CONFTEST)
    (folder / "test_them.py").write_text(TESTS.format(count=count, failures=failures, stage=stage))
    command = [sys.executable, "-m", "pytest", "--rootdir", str(folder), "-c", os.devnull]
    command += ["-p", "no:cacheprovider", "-p", "xdist.plugin"]
    ended = subprocess.run(
        [*command, *arguments, str(folder)],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": str(ROOT), "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1", "TMPDIR": str(folder)},
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )
    return ended.returncode, ended.stdout.splitlines()


@pytest.mark.parametrize(
    ("stage", "count", "processes"), [("call", MOST, []), ("setup", 2, []), ("call", 2, ["--numprocesses", "2"])]
)
def test_run_passes_if_a_failed_test_passes_alone(tmp_path: Path, stage: str, count: int, processes: list[str]) -> None:
    status, lines = run(tmp_path, count, 1, "--run-again", *processes, stage=stage)
    assert status == 0, lines
    closing, named = lines[-count - 1], lines[-count:]
    assert f" 1 passed, {count} rerun in " in closing
    for place, line in enumerate(sorted(named)):
        assert re.fullmatch(rf"passed only alone: test_them.py::test_it\[{place}\] \(seed 17, load [\d.]+\)", line)
    assert any(f"Failed: seed 17 of the {stage}" in line for line in lines), "the traceback is missing"
    assert (tmp_path / "others").read_text() == "x", "a test that had passed ran again"


@pytest.mark.parametrize(
    ("count", "failures", "stage", "arguments", "runs", "closing"),
    [
        (1, 2, "call", ["--run-again"], 2, " 1 failed, 1 passed in "),
        (MOST + 1, 1, "call", ["--run-again", "--numprocesses", "2"], 1, f" {MOST + 1} failed, 1 passed in "),
        (1, 1, "teardown", ["--run-again"], 1, " 2 passed, 1 error in "),
        (1, 1, "call", [], 1, " 1 failed, 1 passed in "),
    ],
    ids=["fails alone too", "many fail", "a teardown fails", "without the option"],
)
def test_run_fails_all_the_same(
    tmp_path: Path, count: int, failures: int, stage: str, arguments: list[str], runs: int, closing: str
) -> None:
    status, lines = run(tmp_path, count, failures, *arguments, stage=stage)
    assert status == 1
    assert closing in lines[-1]
    assert len((tmp_path / "seen-test_it[0]").read_text()) == runs
    if count > MOST:
        assert any(f"{MOST + 1} tests failed, none ran again: at most {MOST}" in line for line in lines)

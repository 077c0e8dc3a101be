"""docs/compatibility.md is what the script makes of the recorded results, and these are what a run
of tests has shown."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]

TESTS = """
import pytest

from tests.compatibility.recorder import compatibility, pytest_addoption, pytest_configure


@pytest.mark.parametrize("column", ["one", "two", "three", "four"])
@pytest.mark.parametrize("part", [1, 2])
def test_it(compatibility, column, part):
    compatibility("trl", "9.10.0", column, "works, warns" if column == "two" else "works", ("pytest",))
    if column == "three":
        pytest.skip("not there")
    assert (column, part) != ("four", 2)
"""


def test_the_page_is_up_to_date() -> None:
    made = subprocess.run(
        [sys.executable, ROOT / "scripts" / "compatibility-table"], capture_output=True, text=True, check=False
    )
    assert made.returncode == 0, made.stderr
    page = (ROOT / "docs" / "compatibility.md").read_text(encoding="utf-8")
    assert page == made.stdout, "results have changed: scripts/compatibility-table >docs/compatibility.md"


def test_nothing_that_fails_is_recorded() -> None:
    for path in (ROOT / "tests" / "compatibility").glob("*.json"):
        for name, row in json.loads(path.read_text(encoding="utf-8")).items():
            assert "fails" not in row["cells"].values(), f"{path.name}: {name}"


def test_a_run_records_its_cells_and_leaves_other_rows(tmp_path: Path) -> None:
    results = tmp_path / "results"
    results.mkdir()
    earlier = {"cells": {"one": "works"}, "recorded": "2000-01-01", "versions": {}}
    (results / "trl.json").write_text(json.dumps({"9.9.0": earlier}))
    (tmp_path / "test_them.py").write_text(TESTS)
    (tmp_path / "conftest.py").write_text(
        "from pathlib import Path\n"
        "from tests.compatibility import recorder\n"
        "from tests.compatibility.recorder import *\n"
        "from tests.compatibility.recorder import pytest_addoption, pytest_configure\n"
        f"recorder.FOLDER = Path({str(results)!r})\n"
    )
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "--record-compatibility", "-n", "2"]
    command += ["--basetemp", str(tmp_path / "temporary"), "test_them.py"]
    done = subprocess.run(
        [*command, "-o", f"pythonpath={ROOT}"], cwd=tmp_path, capture_output=True, text=True, timeout=120, check=False
    )
    assert "1 failed, 5 passed, 2 skipped" in done.stdout, done.stdout + done.stderr
    rows = json.loads((results / "trl.json").read_text(encoding="utf-8"))
    assert rows["9.9.0"] == earlier
    cells = rows["9.10.0"]["cells"]
    assert cells == {"one": "works", "two": "works, warns", "three": "–", "four": "fails"}
    assert rows["9.10.0"]["versions"] == {"pytest": pytest.__version__}

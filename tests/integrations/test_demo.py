"""The demo, a short form of it: GRPO with TRL's unmodified trainer really learns."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.example_runs import run

pytest.importorskip("trl")
Image = pytest.importorskip("PIL.Image")


@pytest.mark.timeout(600)
def test_reward_rises(tmp_path: Path) -> None:
    """Row 22 of docs/internals/promises.md."""
    out = run("demo.py", tmp_path, "--out", str(tmp_path), "--steps", "40", "--seed", "1", trains=True)
    printed = re.search(r"mean reward +(\d\.\d+) in the first 4 steps, (\d\.\d+) in the last 4", out)
    assert printed is not None, out
    first, last = map(float, printed.groups())
    assert last > first + 0.3, out
    assert {"counts_on", "judge", "standing", "parses"} <= {line.split()[0] for line in out.splitlines() if line}
    assert re.search(r"parses: \d+ of 2560 failed\n +\d+ timeout, first sample \d+", out), out
    with Image.open(tmp_path / "demo.png") as picture:
        assert picture.size == (1200, 500)
        assert len(picture.getcolors(1 << 20)) > 10


@pytest.mark.whole
@pytest.mark.timeout(600)
def test_the_same_without_guerdon(tmp_path: Path) -> None:
    out = run("demo.py", tmp_path, "--out", str(tmp_path), "--steps", "2", "--serial", trains=True)
    assert re.search(r"in rewards +\d+\.\d s TRL alone", out), out

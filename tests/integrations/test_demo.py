"""The demo, a short form of it: GRPO with TRL's unmodified trainer really learns (acceptance row 22)."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("trl")
Image = pytest.importorskip("PIL.Image")

DEMO = Path(__file__).parents[2] / "examples" / "demo.py"


@pytest.mark.timeout(300)
@pytest.mark.parametrize("options", [["--seed", "0"], ["--seed", "1", "--serial"]], ids=["guerdon", "serial"])
def test_reward_rises(options: list[str], tmp_path: Path) -> None:
    """Row 22."""
    ended = subprocess.run(
        [sys.executable, str(DEMO), "--steps", "40", "--out", str(tmp_path), *options],
        capture_output=True,
        text=True,
        check=False,
        cwd=tmp_path,
        env={**os.environ, "TMPDIR": str(tmp_path)},
    )
    assert ended.returncode == 0, ended.stderr
    said = re.search(r"mean reward +(\d\.\d+) in the first 4 steps, (\d\.\d+) in the last 4", ended.stdout)
    assert said is not None, ended.stdout
    first, last = map(float, said.groups())
    assert last > first + 0.3, ended.stdout
    if "--serial" in options:
        return
    names = [
        line.split()[0] for line in ended.stdout.splitlines() if line.startswith(("counts_on", "judge", "standing"))
    ]
    assert names == ["counts_on", "judge", "standing"]
    assert re.search(r"parses: \d+ of 2560 failed\n +\d+ timeout, first sample \d+", ended.stdout), ended.stdout
    with Image.open(tmp_path / "demo.png") as picture:
        assert picture.size == (1200, 500)
        assert len(picture.getcolors(1 << 20)) > 10

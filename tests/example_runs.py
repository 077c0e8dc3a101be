"""Running an example as its reader would."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests import warm_programs

EXAMPLES = Path(__file__).parents[1] / "examples"


def run(name: str, folder: Path, *arguments: str, trains: bool = False) -> str:
    """Runs the example in `folder` and returns its output; with TRL imported if it `trains`."""
    command = [str(EXAMPLES / name), *arguments]
    env = {**os.environ, "TMPDIR": str(folder)}
    if trains:
        ended = warm_programs.run(command, folder, env)
    else:
        ended = subprocess.run(
            [sys.executable, *command], capture_output=True, text=True, check=False, cwd=folder, env=env
        )
    assert ended.returncode == 0, ended.stderr
    return ended.stdout


def skip_unless_downloadable(packages: list[str], folder: Path) -> None:
    """Skips the test where an example's packages can't be downloaded."""
    pip = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--dest", str(folder)]
    got = subprocess.run([*pip, *packages], capture_output=True, text=True, check=False)
    if got.returncode:
        pytest.skip(f"no {', '.join(packages)}: {got.stderr[-200:]}")

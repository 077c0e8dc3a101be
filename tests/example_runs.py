"""Running an example as its reader would."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

EXAMPLES = Path(__file__).parents[1] / "examples"


def run(name: str, folder: Path, *arguments: str) -> str:
    """What the example prints; it is run in `folder`, and has to end well."""
    ended = subprocess.run(
        [sys.executable, str(EXAMPLES / name), *arguments],
        capture_output=True,
        text=True,
        check=False,
        cwd=folder,
        env={**os.environ, "TMPDIR": str(folder)},
    )
    assert ended.returncode == 0, ended.stderr
    return ended.stdout

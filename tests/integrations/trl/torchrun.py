"""Programs on two ranks of one machine."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path


def run_ranks(folder: Path, module: str, *arguments: str, timeout: float = 560) -> subprocess.CompletedProcess[str]:
    """Runs a module of the tests on two ranks, with `arguments` and the folder it writes to."""
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc_per_node", "2"]
    return subprocess.run(
        [*command, "-m", module, *arguments, str(folder)],
        cwd=Path(__file__).parents[3],
        capture_output=True,
        text=True,
        timeout=timeout,
        env={**os.environ, "TMPDIR": str(folder)},
        check=False,
    )

"""Programs on two ranks of one machine."""

from __future__ import annotations

import os
import runpy
import subprocess
import sys
from pathlib import Path

from tests import warm_programs


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


def run_warm_ranks(folder: Path, module: str) -> subprocess.CompletedProcess[str]:
    """Runs a module on two ranks that torchrun's agent forks, with TRL imported."""
    env = {**os.environ, "TMPDIR": str(folder), "OMP_NUM_THREADS": "1"}  # as torchrun sets it
    return warm_programs.run(["-m", __name__, module, str(folder)], Path(__file__).parents[3], env)


def _run_rank(module: str, folder: str) -> None:
    import torch

    torch.set_num_threads(1)  # PyTorch read the variable before the fork
    sys.argv[1:] = [folder]
    runpy.run_module(module, run_name="__main__", alter_sys=True)


if __name__ == "__main__":
    from torch.distributed.launcher.api import LaunchConfig, elastic_launch

    one_node = {"min_nodes": 1, "max_nodes": 1, "nproc_per_node": 2, "max_restarts": 0}
    meeting = {"run_id": str(os.getpid()), "rdzv_backend": "c10d", "rdzv_endpoint": "localhost:0"}
    elastic_launch(LaunchConfig(**one_node, **meeting, start_method="fork"), _run_rank)(*sys.argv[1:])

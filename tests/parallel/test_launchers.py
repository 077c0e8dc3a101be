"""Ranks and cores under the real launchers of DeepSpeed."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from guerdon._system.cpu_count import usable_cores
from tests.http.server import free_port

_RANK = """
import json, os, pathlib
from guerdon._system.cpu_count import default_workers
from guerdon._system.launcher import ranks_on_host, world_size
reported = [ranks_on_host(), world_size(), default_workers(), "LOCAL_WORLD_SIZE" in os.environ]
(pathlib.Path(__file__).parent / f"{os.getpid()}.json").write_text(json.dumps(reported))
"""


@pytest.mark.whole
def test_deepspeed(tmp_path: Path) -> None:
    script = tmp_path / "rank.py"
    script.write_text(_RANK)
    environment = {**os.environ, "DS_ACCELERATOR": "cpu", "TMPDIR": str(tmp_path), "HOME": str(tmp_path)}
    launcher = [sys.executable, "-c", "from deepspeed.launcher.runner import main; main()"]
    ended = subprocess.run(
        [*launcher, "--num_accelerators=2", "--no_local_rank", f"--master_port={free_port()}", str(script)],
        env=environment,
        capture_output=True,
        text=True,
        timeout=280,
        check=False,
    )
    reported = [json.loads(file.read_text()) for file in tmp_path.glob("*.json")]
    # Its own variable, LOCAL_SIZE: torchrun's is not there.
    assert reported == [[2, 2, max(1, usable_cores() // 2), False]] * 2, ended.stderr[-2000:]

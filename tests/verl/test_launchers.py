"""Ranks and cores under real Ray Train."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from guerdon._system.cpu_count import usable_cores

_DRIVER = """
import json, os, sys
import ray
from ray.train import RunConfig, ScalingConfig
from ray.train.torch import TorchTrainer

folder = sys.argv[1]

def rank():
    from guerdon._system.cpu_count import default_workers
    from guerdon._system.launcher import ranks_on_host, world_size
    with open(f"{folder}/{os.getpid()}.json", "w") as file:
        json.dump([ranks_on_host(), world_size(), default_workers()], file)

ray.init(num_cpus=2, include_dashboard=False, _temp_dir=sys.argv[2])
scaling = ScalingConfig(num_workers=2, use_gpu=False)
TorchTrainer(rank, scaling_config=scaling, run_config=RunConfig(storage_path=f"{folder}/run")).fit()
ray.shutdown()
"""


@pytest.mark.soak
@pytest.mark.timeout(600)
def test_ray_train(tmp_path: Path, tmp_path_factory: pytest.TempPathFactory) -> None:
    script = tmp_path / "driver.py"
    script.write_text(_DRIVER)
    ray = tmp_path_factory.mktemp("r")  # the paths of Ray's sockets may not be long
    ended = subprocess.run(
        [sys.executable, "-W", "ignore", str(script), str(tmp_path), str(ray)],
        env=os.environ,
        capture_output=True,
        text=True,
        check=False,
    )
    reported = [json.loads(file.read_text()) for file in tmp_path.glob("*.json")]
    assert reported == [[2, 2, max(1, usable_cores() // 2)]] * 2, ended.stderr[-2000:]

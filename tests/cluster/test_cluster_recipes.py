"""The recipes for clusters in examples/deploy can be used as they stand."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import yaml

DEPLOY = Path(__file__).parents[2] / "examples" / "deploy"


def test_the_script_for_slurm_starts_a_head_then_the_others_then_the_trainer(tmp_path: Path) -> None:
    script = (DEPLOY / "ray-slurm.sh").read_text()
    (workers,) = (line for line in script.splitlines() if "ray start --address" in line)
    assert '--nodes="$others" --ntasks="$others"' in workers, "all but the head, however many --nodes says"
    log = tmp_path / "log"
    for name, does in {
        "scontrol": "printf 'node-%s\\n' 1 2 3",
        "srun": f'echo "$RAY_ADDRESS $SRUN_CPUS_PER_TASK $*" >> {log}',
    }.items():
        (tmp_path / name).write_text(f"#!/bin/sh\n{does}\n")
        (tmp_path / name).chmod(0o755)
    job = {"SLURM_JOB_NODELIST": "node-[1-3]", "SLURM_JOB_NUM_NODES": "3", "SLURM_CPUS_PER_TASK": "32"}
    path = f"{tmp_path}:{os.environ['PATH']}"
    subprocess.run(["bash"], input=script + "wait\n", text=True, env={"PATH": path, **job}, check=True, timeout=60)
    lines = log.read_text().splitlines()
    assert len(lines) == 4
    assert all(line.startswith("node-1:6379 32 ") for line in lines)
    (others,) = (line for line in lines if "ray start --address" in line)
    assert others.endswith(
        "--nodes=2 --ntasks=2 --overlap -x node-1 ray start --address=node-1:6379 --num-cpus=32 --block"
    )
    assert sum("-w node-1" in line for line in lines) == 3, "the head, its status and the trainer"


def test_the_cluster_for_kubernetes_is_one() -> None:
    cluster = yaml.safe_load((DEPLOY / "ray-kubernetes.yaml").read_text())
    assert cluster["kind"] == "RayCluster"
    (workers,) = cluster["spec"]["workerGroupSpecs"]
    assert workers["minReplicas"] <= workers["replicas"] <= workers["maxReplicas"]
    images = [
        group["template"]["spec"]["containers"][0]["image"] for group in (cluster["spec"]["headGroupSpec"], workers)
    ]
    assert len(set(images)) == 1, "the same Python and packages"

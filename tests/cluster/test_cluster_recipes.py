"""The recipes of docs/cluster.md can be used as they stand."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import yaml

PAGE = (Path(__file__).parents[2] / "docs" / "cluster.md").read_text()


def blocks(kind: str) -> list[str]:
    return re.findall(rf"^```{kind}\n(.*?)^```$", PAGE, re.DOTALL | re.MULTILINE)


def test_the_script_for_slurm_is_shell() -> None:
    (script,) = blocks("bash")
    done = subprocess.run(["bash", "-n"], input=script, text=True, capture_output=True)
    assert (done.returncode, done.stderr) == (0, "")
    nodes = int(re.findall(r"--nodes=(\d+)$", script, re.MULTILINE)[0])
    assert f"--nodes={nodes - 1} --ntasks={nodes - 1}" in script, "all but the head"


def test_the_cluster_for_kubernetes_is_one() -> None:
    (text,) = blocks("yaml")
    cluster = yaml.safe_load(text)
    assert cluster["kind"] == "RayCluster"
    (workers,) = cluster["spec"]["workerGroupSpecs"]
    assert workers["minReplicas"] <= workers["replicas"] <= workers["maxReplicas"]
    images = [
        group["template"]["spec"]["containers"][0]["image"] for group in (cluster["spec"]["headGroupSpec"], workers)
    ]
    assert len(set(images)) == 1, "the same Python and packages"

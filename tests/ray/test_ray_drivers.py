"""Drivers of Ray nodes that die, end or stop: what they leave. They count agents, so no dispatcher
of this process has any meanwhile."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

pytest.importorskip("ray")

from tests.ray.nodes import Nodes, agents, wait_until_gone, zygotes

ROOT = Path(__file__).parents[2]
PATIENCE_S = 60.0

_DRIVER = """
import sys
from guerdon import Dispatcher, Ray, reward
from guerdon._lanes.remote.ray import pump
from tests.ray import rewards

if __name__ == "__main__":
    deed = sys.argv[2]
    if deed == "is stopped":
        pump.SILENCE_S, samples = 1.5, 36
    else:
        samples = 400
    cluster = Ray(address=sys.argv[1], reserve=False, cpus_per_node=2)
    dispatcher = Dispatcher([reward(rewards.act)], cluster=cluster)
    dispatcher.score(completions=["1"] * 12, seconds=[0.0] * 12, notes=[""] * 12)
    pending = dispatcher.submit(completions=["1"] * samples, seconds=[1.0] * samples, notes=[""] * samples)
    print("running", flush=True)
    if deed != "end":
        print(sum(pending.result().rewards.ravel().tolist()), flush=True)
        sys.stdin.readline()
"""

_RANK = """
import sys
from guerdon import Dispatcher, Ray, reward
from tests.ray import rewards

if __name__ == "__main__":
    samples = range(120)
    with Dispatcher([reward(rewards.act)], cluster=Ray(address=sys.argv[1], nodes=3)) as dispatcher:
        result = dispatcher.score(
            completions=[str(sample) for sample in samples], seconds=[0.05] * 120, notes=[""] * 120
        )
        assert not result.failures(), result.failures()[:3]
        assert result.rewards.ravel().tolist() == [2.0 * sample for sample in samples]
        nodes = dispatcher.stats()["nodes"]
        print("scored", *(f"{name}:{node['state']}:{node['slots']}" for name, node in sorted(nodes.items())), flush=True)
        sys.stdin.readline()
"""


def _start(text: str, tmp_path: Path, *arguments: str, **launcher: str) -> subprocess.Popen[str]:
    program = tmp_path / "program.py"
    program.write_text(text)
    path = os.pathsep.join([str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")])])
    return subprocess.Popen(
        [sys.executable, str(program), *arguments],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, **launcher, "PYTHONPATH": path},
    )


def _driver(cluster: Nodes, deed: str, tmp_path: Path) -> subprocess.Popen[str]:
    started = _start(_DRIVER, tmp_path, cluster.address, deed)
    _read_until(started, "running")
    return started


def _read_until(driver: subprocess.Popen[str], word: str) -> str:
    assert driver.stdout is not None
    line = ""
    while word not in line:
        line = driver.stdout.readline()
        assert line, driver.communicate()[1]
    return line


@pytest.mark.fault(
    "the driver of Ray nodes is killed (SIGKILL) in mid-batch", sees="agents and workers end within seconds"
)
def test_the_driver_is_killed(cluster: Nodes, tmp_path: Path) -> None:
    cluster.make_whole()
    driver = _driver(cluster, "wait", tmp_path)
    try:
        assert len(agents()) == 3
        assert zygotes()
    finally:
        driver.kill()
        driver.communicate()
    wait_until_gone()


@pytest.mark.whole
@pytest.mark.fault(
    "the driver of Ray nodes ends in mid-batch without closing its dispatcher",
    sees="it ends at once and cleanly, and so do agents and workers",
)
def test_the_driver_ends_in_mid_batch(cluster: Nodes, tmp_path: Path) -> None:
    cluster.make_whole()
    driver = _driver(cluster, "end", tmp_path)
    _, errors = driver.communicate(timeout=PATIENCE_S)
    assert driver.returncode == 0, errors
    assert "Fatal" not in errors, errors
    assert "Traceback" not in errors, errors
    wait_until_gone()


@pytest.mark.whole
@pytest.mark.fault(
    "SIGTERM ends the driver of Ray nodes in mid-batch",
    sees="it ends as it would by itself, and so do agents and workers",
)
def test_the_driver_gets_sigterm(cluster: Nodes, tmp_path: Path) -> None:
    cluster.make_whole()
    driver = _driver(cluster, "wait", tmp_path)
    driver.terminate()
    _, errors = driver.communicate(timeout=PATIENCE_S)
    assert "Fatal" not in errors, errors
    wait_until_gone()


@pytest.mark.whole
@pytest.mark.fault(
    "the driver of Ray nodes is stopped (SIGSTOP) for longer than an agent may be silent",
    sees="nothing: it goes on with the agents that it has",
)
def test_the_driver_is_stopped(cluster: Nodes, tmp_path: Path) -> None:
    cluster.make_whole()
    driver = _driver(cluster, "is stopped", tmp_path)
    before = {agent.pid for agent in agents()}
    driver.send_signal(signal.SIGSTOP)
    time.sleep(4)
    driver.send_signal(signal.SIGCONT)
    assert driver.stdout is not None
    values = driver.stdout.readline()
    after = {agent.pid for agent in agents()}
    _, errors = driver.communicate("\n", timeout=PATIENCE_S)
    assert values.strip() == "72.0", errors
    assert "was lost" not in errors, errors
    assert len(before) == 3
    assert after == before
    wait_until_gone()


@pytest.mark.whole
def test_two_ranks_share_the_nodes(cluster: Nodes, tmp_path: Path) -> None:
    cluster.make_whole()
    ranks = []
    try:
        for rank in "01":
            launcher = {"RANK": rank, "LOCAL_RANK": rank, "WORLD_SIZE": "2", "LOCAL_WORLD_SIZE": "2"}
            ranks.append(_start(_RANK, tmp_path, cluster.address, **launcher))
        lines = [_read_until(rank, "scored") for rank in ranks]
        # Both are there still: an agent for each of them on each node, a CPU of the two for each.
        assert len(agents()) == 6
        ends = [rank.communicate("\n", timeout=PATIENCE_S) for rank in ranks]
        assert [rank.returncode for rank in ranks] == [0, 0], ends
    finally:
        for rank in ranks:
            rank.kill()
            rank.communicate()
    assert [line.split() for line in lines] == [["scored", "head:ready:1", "node-1:ready:1", "node-2:ready:1"]] * 2
    wait_until_gone()

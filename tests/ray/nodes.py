"""A Ray cluster of some nodes on this machine, and the harm that tests do to them."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any, final

import psutil
import ray
from ray.cluster_utils import Cluster

import guerdon
from tests.clock import eventually

OTHERS = ("node-1", "node-2")
CPUS = 2
STORE = 80 << 20
# A raylet that is gone refuses to answer at once, and that often: by default it is 15 s until its
# node is. One that is merely slow has as long as ever.
# A stopped one is killed soon. Workers that nobody asked for would take cores from others.
SYSTEM = {
    "health_check_initial_delay_ms": 500,
    "health_check_period_ms": 300,
    "kill_worker_timeout_milliseconds": 1000,
    "enable_worker_prestart": False,
    "prestart_worker_first_driver": False,
}
ZYGOTE = str(Path(guerdon.__file__).parent / "_worker" / "_zygote.py")
# What an interpreter says that has no guerdon.
_WITHOUT_GUERDON = """
import sys

class Missing:
    def find_spec(self, name, path=None, target=None):
        if name == "guerdon":
            raise ModuleNotFoundError("No module named 'guerdon'")

sys.meta_path.insert(0, Missing())
"""


@final
class Nodes:
    """Nodes by name, ``head`` first: this process is the driver, connected to that one."""

    def __init__(self, others: Sequence[str] = OTHERS) -> None:
        arguments = {
            "num_cpus": CPUS,
            "object_store_memory": STORE,
            "include_dashboard": False,
            "node_name": "head",
            "_system_config": SYSTEM,
        }
        self._others = others
        self._cluster = Cluster(initialize_head=True, head_node_args=arguments)
        _sessions.add(self._cluster.head_node.session_name)
        self._nodes: dict[str, Any] = {}
        self.address: str = self._cluster.address
        self.make_whole()
        ray.init(address=self.address, log_to_driver=False)

    def make_whole(self) -> None:
        """All nodes, whatever was done to them."""
        for name in self._others:
            if name not in self._nodes:
                self.add(name, wait=False)
        self._cluster.wait_for_nodes()

    def add(self, name: str, **more: Any) -> None:
        """A new node of that name; an old one of it has to be gone first."""
        if ray.is_initialized():
            self._wait_until_dead(name)
        self._nodes[name] = self._cluster.add_node(num_cpus=CPUS, object_store_memory=STORE, node_name=name, **more)

    def _wait_until_dead(self, name: str) -> None:
        eventually(lambda: not any(node["Alive"] and node["NodeName"] == name for node in ray.nodes()), f"{name} ends")

    def add_with_another_python(self, name: str, folder: Path) -> None:
        """A node whose workers run in an environment that has Ray and nothing of ours."""
        python = folder / "other" / "bin" / "python"
        subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(folder / "other")], check=True)
        packages = next((folder / "other" / "lib").glob("python*/site-packages"))
        (packages / "without_guerdon.py").write_text(_WITHOUT_GUERDON)
        below = f"import site; site.addsitedir({str(Path(ray.__file__).parents[1])!r})"
        (packages / "below.pth").write_text(f"import without_guerdon\n{below}\n")
        here, sys.executable = sys.executable, str(python)
        try:
            self.add(name)
        finally:
            sys.executable = here

    def remove(self, name: str) -> None:
        self._cluster.remove_node(self._nodes.pop(name), allow_graceful=False)

    def raylet(self, name: str) -> int:
        node = self._cluster.head_node if name == "head" else self._nodes[name]
        pid: int = node.all_processes["raylet"][0].process.pid
        return pid

    def ray_id(self, name: str) -> str:
        found: str = next(node["NodeID"] for node in ray.nodes() if node["NodeName"] == name and node["Alive"])
        return found

    def agent(self, name: str) -> int:
        """The process id of the agent there; waits for one."""
        raylet = psutil.Process(self.raylet(name))
        found: list[int] = []

        def look() -> bool:
            found[:] = [child.pid for child in raylet.children() if "AgentActor" in " ".join(_command(child))]
            return bool(found)

        eventually(look, f"an agent is on {name}", seconds=30)
        return found[0]

    def kill_raylet(self, name: str) -> None:
        """The node's raylet dies by itself; its node is gone."""
        os.kill(self.raylet(name), signal.SIGKILL)
        self._cluster.remove_node(self._nodes.pop(name), allow_graceful=False)

    def drain(self, name: str, seconds: float = 30.0) -> None:
        """The node is preempted: it is to end by then."""
        preemption = 2
        accepted, why = ray._private.worker.global_worker.gcs_client.drain_node(
            self.ray_id(name), preemption, "preempted in a test", int((time.time() + seconds) * 1000)
        )
        assert accepted, why

    def close(self) -> None:
        ray.shutdown()
        self._cluster.shutdown()


# Ray's names of the clusters of this process.
_sessions: set[str] = set()


def agents() -> list[psutil.Process]:
    """All agents, other clusters' on this machine aside."""
    return [one for one in psutil.process_iter() if "ray::AgentActor" in " ".join(_command(one)) and _is_ours(one)]


def _is_ours(agent: psutil.Process) -> bool:
    """Whether its raylet is; one that has lost its own may be."""
    try:
        parent = agent.parent()
    except psutil.Error:
        return False
    command = [] if parent is None else _command(parent)
    found = [part.partition("=")[2] for part in command if part.startswith(("--session-name=", "--session_name="))]
    return not found or found[0] in _sessions


def zygotes() -> list[psutil.Process]:
    """All processes that run the program of this package's workers."""
    return [one for one in psutil.process_iter() if ZYGOTE in _command(one)]


def wait_until_gone(seconds: float = 30.0) -> None:
    """Fails if agents or workers are left."""
    deadline = time.monotonic() + seconds
    while left := [*agents(), *zygotes()]:
        assert time.monotonic() < deadline, f"processes are left: {left}"
        time.sleep(0.1)


def wait_until_nodes(dispatcher: guerdon.Dispatcher, state: str, *names: str, seconds: float = 60.0) -> None:
    """Waits until a dispatcher sees these nodes in this state."""
    deadline = time.monotonic() + seconds
    while any(dispatcher.stats()["nodes"].get(name, {}).get("state") != state for name in names):
        assert time.monotonic() < deadline, dispatcher.stats()["nodes"]
        time.sleep(0.05)


def _command(process: psutil.Process) -> list[str]:
    try:
        found: list[str] = process.cmdline() if process.status() != psutil.STATUS_ZOMBIE else []
    except psutil.Error:  # it ended meanwhile
        return []
    return found

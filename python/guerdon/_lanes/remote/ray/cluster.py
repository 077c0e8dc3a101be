"""The agents of one engine: started, followed as nodes come and go, ended.

- A start checks every node before any call and refuses nodes that can't work. Later nothing is
  refused: nodes that are lost leave their calls to the others.
- The driver's end ends everything: no actor outlives it, and no thread of this process waits in
  Ray when the interpreter ends.
"""

from __future__ import annotations

import atexit
import os
import threading
import time
from typing import TYPE_CHECKING, Final

from guerdon._lanes.remote.ray import connection, nodes, preflight, released
from guerdon._lanes.remote.ray.node import Node, NodeContext
from guerdon._lanes.remote.ray.pauses import Pauses
from guerdon._system.warning import warn
from guerdon.errors import RegistrationError

if TYPE_CHECKING:
    from guerdon._lanes.remote.engine_setup import EngineSetup
    from guerdon._lanes.remote.ray.nodes import RayNode
    from guerdon._lanes.remote.ray.options import Ray
    from guerdon._native import Engine

__all__ = ["RayCluster"]

LOOK_S: Final = 2.0
"""Interval at which Ray's list of nodes is read."""
# The reservation of an actor that has just ended is free a moment later.
_FREE_WAIT_S: Final = 5.0
_FREE_LOOK_S: Final = 0.1
_EXIT_S: Final = 1.0
_JOIN_S: Final = 3.0
_FAILURES_REPORTED: Final = 3


class RayCluster:
    """The nodes of one engine.

    Args:
        options: The user's.
        setup_timeout: Seconds that the functions' `setup` may take on a node.
        shares: Dispatchers that divide the nodes among them: the ranks of a run.
    """

    def __init__(self, options: Ray, setup_timeout: float, shares: int = 1) -> None:
        self._options = options
        self._shares = shares
        # Importing counts as starting.
        self._check_timeout = options.start_timeout + setup_timeout
        self._patience = 2 * options.start_timeout + setup_timeout
        self._pid = os.getpid()
        self._stopped = threading.Event()
        self._connected = False
        # Nodes by Ray's ids. Written by `start`, then by the watcher alone.
        self._nodes: dict[str, Node] = {}
        self._let_go: set[str] = set()
        self._refused: set[str] = set()
        self._busy_at: dict[str, float] = {}
        self._pauses = Pauses()
        # Writes to `_nodes` that `stop` may meet; held for no call that waits.
        self._lock = threading.Lock()
        self._starting: list[threading.Thread] = []
        self._watcher: threading.Thread | None = None
        self._engine: Engine | None = None
        self._shared: NodeContext | None = None

    def start(self, engine: Engine, setup: EngineSetup) -> None:
        """Starts the agents of the present nodes.

        Raises:
            RegistrationError: There is no such cluster, or a node of it can't run the functions.
        """
        connection.connect(self._options.address)
        self._connected = True
        try:
            import ray

            self._engine = engine
            data = ray.put(setup.data)
            self._shared = NodeContext(engine, data, os.getcwd(), self._check_timeout, self._patience, warn)
            for place in self._first():
                self._nodes[place.id] = self._made(place)
            found = preflight.started(list(self._nodes.values()), self._options.start_timeout, self._patience)
            if found.wrong or found.failed or not found.ready:
                mend = (
                    "Make these nodes like this one (packages, files), or leave"
                    if found.wrong
                    else "Try again, or leave"
                )
                raise RegistrationError(
                    f"cluster=guerdon.Ray(…) can't start:\n{found.reasons()}\n{mend} them out with Ray(nodes=[…])."
                )
            for node in list(self._nodes.values()):
                if node in found.ready:
                    node.begin()
                else:
                    self._forget(node.place.id)
        except BaseException:
            self.stop()
            raise
        # It comes before Ray's own end at exit, and before that of engines: without nodes an engine
        # would take their calls to workers of this process.
        atexit.register(self._at_exit)
        self._watcher = threading.Thread(target=self._watch, name="guerdon-nodes", daemon=True)
        self._watcher.start()

    def stop(self) -> None:
        """Ends all agents, after the engine was closed; does nothing in a forked child."""
        if os.getpid() != self._pid or not self._connected:
            return
        self._connected = False
        self._stopped.set()
        atexit.unregister(self._at_exit)
        deadline = time.monotonic() + _JOIN_S
        try:
            # The set of nodes does not change from then on; where it is stuck in Ray, its next one
            # sees `_stopped`.
            self._join(self._watcher, deadline)
            with self._lock:
                ending = list(self._nodes.values())
                self._nodes.clear()
            for node in ending:
                node.end()
            for thread in self._starting:
                self._join(thread, deadline)
            for node in ending:
                node.join(max(0.0, deadline - time.monotonic()))
        finally:
            self._shared = None  # with it the functions in the object store
            connection.disconnect()

    @staticmethod
    def _join(thread: threading.Thread | None, deadline: float) -> None:
        if thread is not None and thread is not threading.current_thread():
            thread.join(max(0.0, deadline - time.monotonic()))

    def _at_exit(self) -> None:
        if os.getpid() == self._pid and self._engine is not None:
            self._engine.close(_EXIT_S)
            self.stop()

    def _made(self, place: RayNode) -> Node:
        assert self._shared is not None
        share = int(place.free) if self._shares == 1 else min(int(place.free), max(1, int(place.cpus) // self._shares))
        cpus = self._options.cpus_per_node or share
        return Node(place, cpus, reserve=self._options.reserve, shared=self._shared)

    def _first(self) -> list[RayNode]:
        """The nodes to begin with.

        Raises:
            RegistrationError: There are none, or one that was named is missing.
        """
        deadline = time.monotonic() + _FREE_WAIT_S
        while True:
            listed = nodes.living()
            named = nodes.chosen(listed, self._options.nodes)
            usable = [node for node in named if self._usable(node)]
            # One that has the CPUs may have them free in a moment.
            may_come = [node for node in named if node not in usable and self._fits(node, node.cpus)]
            enough = not may_come or (usable and not isinstance(self._options.nodes, tuple))
            if time.monotonic() > deadline or (enough and released.shown_free(named)):
                break
            time.sleep(_FREE_LOOK_S)
        self._refuse_missing(listed, named, usable)
        most = self._options.nodes if isinstance(self._options.nodes, int) else len(usable)
        return usable[:most]

    def _usable(self, node: RayNode) -> bool:
        """Returns whether an agent has room there now."""
        return not node.draining and self._fits(node, node.free)

    def _fits(self, node: RayNode, cpus: float) -> bool:
        needed = (self._options.cpus_per_node or 1) if self._options.reserve else 0
        return min(cpus, node.cpus) >= needed

    def _refuse_missing(self, listed: list[RayNode], named: list[RayNode], usable: list[RayNode]) -> None:
        wanted = self._options.nodes
        there = "; ".join(f"{node.name} ({node.address}, {node.free:g} of {node.cpus:g} CPUs free)" for node in listed)
        if isinstance(wanted, tuple):
            known = {name for node in listed for name in (node.id, node.name, node.address, node.given)}
            missing = [name for name in wanted if name not in known]
            if missing:
                raise RegistrationError(
                    f"Ray(nodes=…): the cluster has no node {', '.join(map(repr, missing))}. It has: {there}."
                )
        full = [node.name for node in named if node not in usable]
        if not usable or (isinstance(wanted, tuple) and full):
            needed = self._options.cpus_per_node or 1
            raise RegistrationError(
                f"cluster=guerdon.Ray(…): no room for an agent of {needed} CPU{'' if needed == 1 else 's'} on "
                f"{', '.join(full) or 'any node'}. The cluster has: {there}. Free CPUs there (another dispatcher with Ray() and no "
                "cpus_per_node= takes all of them), give cpus_per_node= less, or Ray(reserve=False, cpus_per_node=…) if those who "
                "hold them leave them idle."
            )

    def _watch(self) -> None:
        while not self._stopped.wait(LOOK_S):
            try:
                self._look()
            except Exception as error:  # Ray's own: it was shut down, or its head can't be reached
                if self._stopped.is_set():
                    return
                self._lose_all_if_gone(error)

    def _look(self) -> None:
        listed = {node.id: node for node in nodes.living()}
        for key, node in list(self._nodes.items()):
            if key not in listed:
                node.lose("preempted" if node.draining else "the node died")
                self._forget(key)
                continue
            if listed[key].draining:
                node.drain()
            if node.refused is not None:
                self._refused.add(key)
                self._forget(key)
            elif node.drained or node.ended:
                self._forget(key)
        self._let_idle_go()
        for place in nodes.chosen(list(listed.values()), self._options.nodes):
            most = self._options.nodes
            if isinstance(most, int) and len(self._nodes) >= most:
                break
            new = place.id not in self._nodes and place.id not in self._refused
            wanted = place.id not in self._let_go or self._backlog()
            free = self._usable(place) and released.shown_free([place])
            if new and wanted and free and self._pauses.over(place.id):
                self._let_go.discard(place.id)
                self._add(place)
        self._pauses.keep(listed)

    def _forget(self, key: str) -> None:
        self._nodes.pop(key).end()
        self._busy_at.pop(key, None)

    def _add(self, place: RayNode) -> None:
        """Starts an agent on a node that came later, or whose agent was of no use; the watcher
        looks on meanwhile."""
        node = self._made(place)
        with self._lock:
            stopped = self._stopped.is_set()
            if not stopped:
                self._nodes[place.id] = node
        if stopped:  # `stop` did not wait, and does not see it
            node.end()
            return
        thread = threading.Thread(target=self._begin, args=(node,), name=f"guerdon-{place.name}", daemon=True)
        self._starting = [*(one for one in self._starting if one.is_alive()), thread]
        thread.start()

    def _begin(self, node: Node) -> None:
        """If the node can't begin now, it is tried again later, unless its functions can't run
        there."""
        key, name = node.place.id, node.place.name
        try:
            found = preflight.started([node], self._options.start_timeout, self._patience)
            if found.ready:
                node.begin()
                self._pauses.end(key)
                return
            why = found.reasons().strip()
            if found.wrong:
                node.refused = why
                self._warn(f"a node that came later is not used: {why}")
                return
        except Exception as error:
            why = f"node {name}: {type(error).__name__}: {error}"
        if self._pauses.begin(key) == _FAILURES_REPORTED:
            self._warn(f"a node could not be begun {_FAILURES_REPORTED} times, and is tried again: {why}")
        node.fail()

    def _warn(self, message: str) -> None:
        if not self._stopped.is_set():
            warn(message)

    def _let_idle_go(self) -> None:
        patience = self._options.idle_timeout
        if patience is None or self._engine is None:
            return
        calls = {node["name"]: node["calls"] for node in self._engine.nodes() if node["state"] == "ready"}
        now = time.monotonic()
        for key, node in self._nodes.items():
            idle = calls.get(node.place.name) == 0
            if not idle:
                self._busy_at[key] = now
            elif now - self._busy_at.setdefault(key, now) > patience and len(calls) > 1 and not node.draining:
                del calls[node.place.name]
                self._let_go.add(key)
                node.drain()

    def _backlog(self) -> bool:
        """Returns whether all agents have as much as they can run."""
        assert self._engine is not None
        return all(
            node["calls"] >= node["slots"] for node in self._engine.nodes() if node["state"] in ("ready", "connecting")
        )

    def _lose_all_if_gone(self, error: Exception) -> None:
        import ray

        if not ray.is_initialized():
            for key, node in list(self._nodes.items()):
                node.lose(f"this process has left the Ray cluster ({type(error).__name__})")
                self._forget(key)
            self._stopped.set()

"""A cluster in one process: agents whose links are pumped by threads, with faults on request."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from types import TracebackType
from typing import Any

import pytest

import guerdon
from guerdon._engine.handle import EngineHandle
from guerdon._lanes.remote.agent import NodeAgent
from guerdon._lanes.remote.engine_setup import EngineSetup
from guerdon._native import Engine, Link

PIECE = 1000
"""Bytes: messages come in several pieces."""


class InMemoryCluster:
    """Nodes ``a``, ``b``, … with so many workers each; a `guerdon._lanes.remote.plan.Cluster`."""

    def __init__(self, *workers: int, delay: float = 0.0) -> None:
        self._workers = dict(zip("abcdefgh", workers, strict=False))
        self._delay = delay
        self._threads: list[threading.Thread] = []
        self.agents: dict[str, NodeAgent] = {}
        self.links: dict[str, tuple[Link, Link]] = {}
        self.bytes = 0
        self._delivering: dict[str, threading.Event] = {}
        self._engine: Engine | None = None
        self._setup: EngineSetup | None = None

    def start(self, engine: Engine, setup: EngineSetup) -> None:
        self._engine, self._setup = engine, setup
        for name, workers in self._workers.items():
            self.add(name, workers)

    def add(self, name: str, workers: int) -> None:
        assert self._engine is not None
        assert self._setup is not None
        agent = self.agents[name] = NodeAgent(self._setup.data, workers=workers)
        agent.check()
        ours, theirs = self._engine.add_node(name), agent.connect("driver")
        self.links[name] = ours, theirs
        self._delivering[name] = threading.Event()
        self._delivering[name].set()
        for source, target in ((ours, theirs), (theirs, ours)):
            thread = threading.Thread(target=self._pump, args=(name, source, target), daemon=True)
            thread.start()
            self._threads.append(thread)

    def _pump(self, name: str, source: Link, target: Link) -> None:
        while True:
            try:
                pieces = source.take_pieces(1.0, PIECE)
            except ConnectionError as error:
                target.lost(str(error))
                return
            if pieces is not None:
                self.bytes += sum(map(len, pieces))
                assert all(len(piece) == PIECE for piece in pieces[:-1])
                time.sleep(self._delay)
                self._delivering[name].wait()
                target.deliver(*pieces)

    def stop_delivery(self, name: str) -> None:
        """Messages from and to a node stay where they are."""
        self._delivering[name].clear()

    def go_on(self, name: str) -> None:
        self._delivering[name].set()

    def kill(self, name: str, reason: str = "connection reset", *, innocent: bool = False) -> None:
        """A node is gone from one moment to the next."""
        for link in self.links.pop(name):
            link.lost(reason, innocent=innocent)
        self.agents.pop(name).close()

    def stop(self) -> None:
        for agent in self.agents.values():
            agent.close()
        for thread in self._threads:
            thread.join(10)
            assert not thread.is_alive()


class ClusterDispatcher:
    def __init__(self, functions: list[Any], cluster: InMemoryCluster, **options: Any) -> None:
        self.cluster = cluster
        self.dispatcher = guerdon.Dispatcher(functions, **options)
        handle: EngineHandle = self.dispatcher._engine
        handle._make_cluster = lambda: cluster

    def __enter__(self) -> guerdon.Dispatcher:
        return self.dispatcher

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, stack: TracebackType | None
    ) -> None:
        self.dispatcher.close()


def errors(capfd: pytest.CaptureFixture[str], enough: Callable[[str], bool]) -> str:
    """Returns the text on standard error once there is enough; agents print a moment later."""
    err, end = "", time.monotonic() + 60
    while not enough(err) and time.monotonic() < end:
        time.sleep(0.01)
        err += capfd.readouterr().err
    return err

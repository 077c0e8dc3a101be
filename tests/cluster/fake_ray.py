"""The part of Ray that a cluster of agents uses, in this process: nodes that tests add and take
away, actors that do what tests say, and a list of all that was done."""

from __future__ import annotations

import queue
import sys
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from concurrent.futures import TimeoutError as FutureTimeoutError
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

from guerdon._lanes.remote.ray import connection, nodes, starting
from guerdon._lanes.remote.ray.nodes import RayNode
from guerdon._lanes.remote.ray.versions import installed


class RayError(Exception):
    pass


class RayTaskError(RayError):
    def __init__(self, cause: Exception) -> None:
        super().__init__(str(cause))
        self.cause = cause


class GetTimeoutError(RayError):
    pass


class RayActorError(RayError):
    pass


class ActorDiedError(RayActorError):
    pass


class RaySystemError(RayError):
    pass


class FakeRay:
    """Ray with these nodes.

    Attributes:
        listed: The nodes, as `nodes.living` gives them.
        actors: All that were ever made.
        on_open: What an actor's `open` does, by the node's id.
        on_start: Is called as an actor is made, with its node's id.
    """

    def __init__(self, *names: str) -> None:
        self.listed = [a_node(name) for name in names]
        self.actors: list[FakeActor] = []
        self.on_open: dict[str, Callable[[], object]] = {}
        self.on_start: Callable[[str], None] = lambda key: None
        self.kinds = 0
        self.by_value: set[object] = set()

    def living(self) -> list[RayNode]:
        return list(self.listed)

    def left(self) -> list[FakeActor]:
        """Actors that nobody ended for good."""
        return [actor for actor in self.actors if not actor.dead]

    def of(self, key: str) -> list[FakeActor]:
        return [actor for actor in self.actors if actor.node == key]


class FakeActor:
    """An agent's actor that answers what it is told to."""

    def __init__(self, ray: FakeRay, node: str) -> None:
        self.node, self._ray = node, ray
        self.dead = False
        self.restarts = 0
        self.delivered: list[tuple[bytes, ...]] = []
        self.answer: Callable[[], object] = lambda: None
        self.ends_stream = True
        self.messages: queue.SimpleQueue[object] = queue.SimpleQueue()

    def __getattr__(self, name: str) -> Any:
        return FakeMethod(getattr(self, "do_" + name))

    def do_versions(self, source: str) -> object:
        return self._of(lambda: installed())

    def do_open(self, session: int, *rest: object) -> object:
        return self._of(self._ray.on_open.get(self.node, lambda: 1))

    def do_deliver(self, session: int, number: int, *pieces: bytes) -> object:
        self.delivered.append(pieces)
        return self._of(self.answer)

    def do_stream(self, session: int) -> Iterator[object]:
        while True:
            message = self.messages.get()
            if isinstance(message, Exception):
                raise message
            yield done(message)

    def do_close(self) -> object:
        if self.ends_stream:
            self.messages.put("the session is over")
        return done(None)

    def _of(self, answer: Callable[[], object]) -> object:
        if self.dead:
            return failed(ActorDiedError("it was killed"))
        try:
            found = answer()
        except Exception as error:
            return failed(error)
        return found if isinstance(found, Future) else done(found)

    def kill(self, no_restart: bool) -> None:
        self.dead = self.dead or no_restart
        self.restarts += not no_restart
        self.messages.put(ActorDiedError("it was killed"))


class FakeMethod:
    def __init__(self, call: Callable[..., object]) -> None:
        self._call = call

    def options(self, **options: object) -> FakeMethod:
        return self

    def remote(self, *arguments: object) -> object:
        return self._call(*arguments)


class FakeLink:
    """The driver's end of a link, without an engine."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.reason: str | None = None
        self.innocent = False
        self.outgoing: queue.SimpleQueue[bytes | None] = queue.SimpleQueue()
        self.received: list[object] = []
        self.patience: list[float] = []

    @property
    def closed(self) -> bool:
        return self.reason is not None

    def take_pieces(self, timeout: float, size: int, *, linger: float = 0.0, enough: int = 0) -> list[bytes] | None:
        """The next message; all of them hurry."""
        self.patience.append(timeout)
        try:
            message = self.outgoing.get(timeout=timeout)
        except queue.Empty:
            return None
        if message is None:
            self.outgoing.put(None)
            raise ConnectionError(self.reason or "closed")
        return [message[start : start + size] for start in range(0, len(message), size)]

    def deliver(self, message: object) -> None:
        self.received.append(message)

    def lost(self, reason: str, *, innocent: bool = False) -> None:
        if self.reason is None:
            self.reason, self.innocent = reason, innocent
            self.outgoing.put(None)


class FakeEngine:
    """An engine that only knows its nodes."""

    def __init__(self) -> None:
        self.links: list[FakeLink] = []
        self.drained: list[str] = []
        self.calls: dict[str, int] = {}
        self.on_add: Callable[[str], None] = lambda name: None

    def add_node(self, name: str) -> FakeLink:
        self.on_add(name)
        self.links.append(FakeLink(name))
        return self.links[-1]

    def drain_node(self, name: str) -> None:
        found = self.open_link(name)
        if found is None:
            raise ValueError(f"there is no node {name!r}")
        self.drained.append(name)
        found.lost("drained", innocent=True)

    def open_link(self, name: str) -> FakeLink | None:
        return next((link for link in self.links if link.name == name and not link.closed), None)

    def nodes(self) -> list[Any]:
        return [
            {"name": link.name, "state": "ready", "slots": 1, "calls": self.calls.get(link.name, 0)}
            for link in self.links
            if not link.closed
        ]

    def close(self) -> None:
        for link in self.links:
            link.lost("the engine is closed")


def a_node(name: str, *, draining: bool = False) -> RayNode:
    return RayNode(name + "-id", name, "10.0.0.1", name, 2.0, 2.0, draining)


def done(value: object) -> Future[object]:
    future: Future[object] = Future()
    future.set_result(value)
    return future


def failed(error: Exception) -> Future[object]:
    future: Future[object] = Future()
    future.set_exception(error)
    return future


def installed_as(monkeypatch: pytest.MonkeyPatch, fake: FakeRay) -> FakeRay:
    """`import ray` gives this one, for one test."""
    from guerdon._lanes.remote.ray import actor

    def get(future: Future[object], timeout: float | None = None) -> object:
        try:
            return future.result(timeout)
        except FutureTimeoutError:
            raise GetTimeoutError from None

    def start(node: str) -> FakeActor:
        time.sleep(0.001)
        assert actor in fake.by_value, "it was pickled by reference: nodes without guerdon can't say so"
        fake.on_start(node)
        fake.actors.append(FakeActor(fake, node))
        return fake.actors[-1]

    def remote(**options: object) -> Callable[[type], Any]:
        fake.kinds += 1
        return lambda kind: SimpleNamespace(
            options=lambda **options: SimpleNamespace(remote=lambda: start(options["scheduling_strategy"]))
        )

    ray, strategies = ModuleType("ray"), ModuleType("ray.util.scheduling_strategies")
    strategies.NodeAffinitySchedulingStrategy = lambda node, soft: node  # type: ignore[attr-defined]
    parts = {
        "remote": remote,
        "get": get,
        "put": lambda value: value,
        "kill": lambda actor, no_restart=True: actor.kill(no_restart),
        "is_initialized": lambda: True,
        "exceptions": sys.modules[__name__],
        # It is cloudpickle's: one registry for the process, and an error if a module is not in it.
        "cloudpickle": SimpleNamespace(
            register_pickle_by_value=fake.by_value.add, unregister_pickle_by_value=fake.by_value.remove
        ),
    }
    for name, value in parts.items():
        setattr(ray, name, value)
    for name, module in (("ray", ray), ("ray.util", ModuleType("ray.util")), (strategies.__name__, strategies)):
        monkeypatch.setitem(sys.modules, name, module)
    monkeypatch.setattr(starting, "_kind", None)
    monkeypatch.setattr(nodes, "living", fake.living)
    monkeypatch.setattr(connection, "check_installed", lambda: None)
    return fake

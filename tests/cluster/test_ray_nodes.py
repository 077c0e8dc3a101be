"""Nodes of a Ray cluster that come, go and fail, on a Ray of this process: each is used for as long
as it can be, and none is left behind."""

from __future__ import annotations

import itertools
import sys
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

from guerdon import Ray, RegistrationError
from guerdon._lanes.remote.engine_setup import EngineSetup
from guerdon._lanes.remote.factory import factory_of
from guerdon._lanes.remote.ray import cluster, connection, node, nodes, pauses, released
from guerdon._lanes.remote.ray.cluster import RayCluster
from guerdon._lanes.remote.ray.node import Node, NodeContext
from guerdon._lanes.remote.ray.starting import start_actor
from tests.clock import eventually
from tests.cluster.fake_ray import (
    ActorDiedError,
    FakeEngine,
    FakeRay,
    RaySystemError,
    RayTaskError,
    a_node,
    installed_as,
)


@pytest.fixture
def ray(monkeypatch: pytest.MonkeyPatch) -> FakeRay:
    """One node, looked at often."""
    monkeypatch.setattr(cluster, "LOOK_S", 0.01)
    monkeypatch.setattr(cluster, "_FREE_WAIT_S", 0.0)
    monkeypatch.setattr(pauses, "_FIRST_S", 0.01)
    monkeypatch.setattr(node, "_FIRST_PAUSE_S", 0.01)
    monkeypatch.setattr(released, "_nodes", {})
    return installed_as(monkeypatch, FakeRay("a"))


@pytest.fixture
def warned(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    found: list[str] = []
    monkeypatch.setattr(cluster, "warn", found.append)
    return found


class Running:
    def __init__(self, options: Ray) -> None:
        self.engine = FakeEngine()
        self.cluster = RayCluster(options, 0.0)
        self.cluster.start(self.engine, EngineSetup(b"digest", b"data"))  # type: ignore[arg-type]

    def close(self) -> None:
        self.engine.close()
        self.cluster.stop()


@pytest.fixture
def started(ray: FakeRay, warned: list[str]) -> Iterator[Running]:
    made = Running(Ray(start_timeout=60.0))
    yield made
    made.close()
    assert connection._users == 0
    assert ray.left() == []
    assert not [thread.name for thread in threading.enumerate() if thread.name.startswith("guerdon-")]


def test_nodes_that_share_a_name_are_told_apart(monkeypatch: pytest.MonkeyPatch) -> None:
    def listed(number: int, *, named: str | None, alive: bool = True) -> dict[str, Any]:
        node = {"NodeID": f"{number}" * 8, "NodeManagerAddress": "10.0.0.1", "Resources": {"CPU": 2.0}, "Alive": alive}
        return node if named is None else {**node, "NodeName": named}

    listing = [listed(1, named="a"), listed(2, named=None), listed(3, named=None), listed(4, named="a", alive=False)]
    ray, private = ModuleType("ray"), ModuleType("ray._private")
    ray.nodes = lambda: listing  # type: ignore[attr-defined]
    private.state = SimpleNamespace(available_resources_per_node=dict, state=None)  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "ray", ray)
    monkeypatch.setitem(sys.modules, "ray._private", private)
    assert [node.name for node in nodes.living()] == ["10.0.0.1-222222", "10.0.0.1-333333", "a"]


def fails(ray: FakeRay, key: str, *errors: Exception, for_ever: bool = False) -> None:
    """Opening an agent there raises these, one after the other, or the one for ever."""
    left = iter(errors) if not for_ever else itertools.repeat(errors[0])

    def open_it() -> int:
        for error in left:
            raise error
        return 1

    ray.on_open[key] = open_it


def _a_node(engine: FakeEngine, warned: list[str]) -> Node:
    shared: Any = NodeContext(engine, b"data", "/", 1.0, 5.0, warned.append)  # type: ignore[arg-type]
    return Node(a_node("a"), 1, reserve=True, shared=shared)


def test_actors_are_started_by_many_threads_at_once(ray: FakeRay) -> None:
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(lambda _: start_actor("a-id", 1), range(40)))
    assert len(ray.actors) == 40
    assert ray.kinds == 1
    assert ray.by_value == set()


def test_a_node_that_fails_for_a_while_is_used_again(ray: FakeRay, started: Running) -> None:
    fails(ray, "a-id", RaySystemError("the raylet is busy"), RaySystemError("still"), RayTaskError(OSError("no space")))
    started.engine.links[0].lost("a broken connection")
    eventually(lambda: started.engine.open_link("a"))
    assert ray.actors[0].dead is False
    assert len(ray.actors) == 1


@pytest.mark.fault(
    "Ray can't start an agent in place of a lost one", sees="a warning after the third time; it is tried again for ever"
)
def test_one_that_goes_on_failing_is_reported_once(ray: FakeRay, warned: list[str]) -> None:
    engine = FakeEngine()
    one = _a_node(engine, warned)
    one.begin()
    fails(ray, "a-id", RaySystemError("the raylet is busy"), for_ever=True)
    engine.links[0].lost("a broken connection")
    eventually(lambda: warned)
    assert "node a has failed to start an agent 3 times" in warned[0]
    assert "the raylet is busy" in warned[0]
    one.end()
    one.join(60)
    assert len(warned) == 1


def test_one_whose_functions_can_not_run_any_more_is_not_tried_again(ray: FakeRay, started: Running) -> None:
    fails(ray, "a-id", RayTaskError(RegistrationError("no module named 'judge'")), for_ever=True)
    started.engine.links[0].lost("a broken connection")
    eventually(lambda: ray.left() == [])
    time.sleep(0.1)
    assert len(ray.actors) == 1


def test_a_node_whose_thread_has_ended_is_begun_anew(ray: FakeRay, started: Running) -> None:
    calls = iter([ValueError("there is a node 'a' already")])

    def refuse(name: str) -> None:
        for error in calls:
            raise error

    started.engine.on_add = refuse
    started.engine.links[0].lost("a broken connection")
    eventually(lambda: started.engine.open_link("a"))
    assert [actor.dead for actor in ray.actors] == [True, False]


@pytest.mark.fault(
    "the agent of a Ray node that came later can't be begun", sees="it is tried again, the third time with a warning"
)
def test_a_later_node_that_can_not_be_begun_is_tried_again(ray: FakeRay, warned: list[str], started: Running) -> None:
    fails(ray, "b-id", RaySystemError("busy"), ActorDiedError("out of memory"), RaySystemError("busy"))
    ray.listed.append(a_node("b"))
    eventually(lambda: started.engine.open_link("b"))
    assert len(ray.of("b-id")) >= 2


def test_a_later_node_that_is_wrong_is_left_alone(ray: FakeRay, warned: list[str], started: Running) -> None:
    fails(ray, "b-id", RayTaskError(RegistrationError("no module named 'judge'")), for_ever=True)
    ray.listed.append(a_node("b"))
    eventually(lambda: warned and ray.of("b-id")[0].dead)
    time.sleep(0.1)
    assert len(ray.of("b-id")) == 1
    assert len(warned) == 1
    assert "no module named 'judge'" in warned[0]


@pytest.mark.fault("Ray nodes come while a dispatcher is closed", sees="nothing: no agent is left behind")
def test_a_node_that_comes_while_all_is_closed_is_not_left(ray: FakeRay, warned: list[str]) -> None:
    """Nodes come with each look, and closing waits for none of them."""
    for _ in range(5):
        ray.listed[:] = [a_node("a")]
        made = Running(Ray(start_timeout=60.0))

        def come(key: str) -> None:
            ray.listed.append(a_node(f"n{len(ray.listed)}"))

        ray.on_start = come
        come("")
        eventually(lambda: len(ray.listed) > 3)
        made.close()
        assert ray.left() == []
        assert connection._users == 0
    assert warned == []


def test_closing_does_not_wait_for_a_look_that_hangs(ray: FakeRay, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cluster, "_JOIN_S", 0.2)
    made = Running(Ray(start_timeout=60.0))
    hangs, goes_on = threading.Event(), threading.Event()

    def hang(key: str) -> None:
        hangs.set()
        assert goes_on.wait(60)

    ray.on_start = hang
    ray.listed.append(a_node("b"))
    assert hangs.wait(60)
    watcher = made.cluster._watcher
    made.close()
    assert connection._users == 0
    goes_on.set()
    assert watcher is not None
    watcher.join(60)
    assert len(ray.actors) == 2
    assert ray.left() == []


def test_an_actor_that_takes_the_place_of_a_dead_one_is_not_left(ray: FakeRay, warned: list[str]) -> None:
    """`end` comes while it is made."""
    engine = FakeEngine()
    one = _a_node(engine, warned)
    one.begin()
    fails(ray, "a-id", ActorDiedError("the node restarts"), for_ever=True)
    ray.on_start = lambda key: one.end()
    engine.links[0].lost("a broken connection")
    eventually(lambda: len(ray.actors) == 2)
    one.join(60)
    assert ray.left() == []


def test_a_node_that_drains_is_left_when_it_is_empty(ray: FakeRay, warned: list[str], started: Running) -> None:
    ray.listed[:] = [a_node("a", draining=True), a_node("b")]
    eventually(lambda: started.engine.drained == ["a"] and started.engine.open_link("b"))
    eventually(lambda: [actor.dead for actor in ray.actors] == [True, False])
    ray.listed.pop(0)
    time.sleep(0.05)
    assert warned == []


def test_a_look_goes_on_past_a_node_that_drained_and_is_gone(ray: FakeRay, started: Running) -> None:
    watched = started.cluster
    watched._stopped.set()
    assert watched._watcher is not None
    watched._watcher.join(60)
    watched._stopped.clear()
    watched._nodes["a-id"].drain()
    eventually(lambda: watched._nodes["a-id"].drained)
    ray.listed[:] = [a_node("b")]
    watched._look()
    assert list(watched._nodes) == ["b-id"]


def test_a_node_that_drains_before_it_begins_gets_nothing(ray: FakeRay, warned: list[str]) -> None:
    engine = FakeEngine()
    one = _a_node(engine, warned)
    one.drain()
    one.begin()
    assert engine.links == []
    assert one.drained
    one.end()


def test_as_many_nodes_as_asked_for_are_held(ray: FakeRay, warned: list[str]) -> None:
    """One that is gone is made up for by another."""
    ray.listed[:] = [a_node("a"), a_node("b"), a_node("c")]
    with closing(Running(Ray(nodes=2, start_timeout=60.0))) as made:
        assert {actor.node for actor in ray.left()} == {"a-id", "b-id"}
        ray.listed.pop(0)
        eventually(lambda: made.engine.open_link("c"))
        assert {actor.node for actor in ray.left()} == {"b-id", "c-id"}


@pytest.mark.parametrize(
    ("cpus", "free", "shares", "taken"),
    [(16.0, 12.0, 1, 12), (16.0, 12.0, 4, 4), (16.0, 3.0, 4, 3), (2.0, 1.0, 8, 1)],
    ids=["one rank takes what is free", "ranks divide the node", "no more than is free", "one at least"],
)
def test_ranks_divide_a_node_among_them(
    ray: FakeRay, monkeypatch: pytest.MonkeyPatch, cpus: float, free: float, shares: int, taken: int
) -> None:
    ray.listed[:] = [a_node("a")._replace(cpus=cpus, free=free)]
    made = RayCluster(Ray(), 0.0, shares)
    monkeypatch.setattr(made, "_shared", object())
    (place,) = made._first()
    assert made._made(place).cpus == taken


def test_an_engine_takes_the_share_of_its_rank(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RANK", "0")
    monkeypatch.setenv("WORLD_SIZE", "4")
    made = factory_of(Ray(), 1, ())()
    assert isinstance(made, RayCluster)
    assert made._shares == 4


def test_idle_nodes_are_let_go_and_come_back(ray: FakeRay, warned: list[str]) -> None:
    ray.listed[:] = [a_node("a"), a_node("b"), a_node("c")]
    with closing(Running(Ray(idle_timeout=0.05, start_timeout=60.0))) as made:
        eventually(lambda: len(ray.left()) == 1)
        time.sleep(0.1)
        assert len(ray.left()) == 1  # the last one stays
        made.engine.calls = dict.fromkeys("abc", 5)
        eventually(lambda: len(ray.left()) == 3)


@pytest.mark.parametrize(
    ("patience_s", "looks", "cpus"),
    [(20.0, [1.0, 1.0, 2.0], 2), (0.01, [1.0], 1)],
    ids=["a moment later Ray sees that the agent is gone", "others took them meanwhile"],
)
def test_cpus_that_were_just_given_back_are_waited_for_a_while(
    ray: FakeRay, warned: list[str], monkeypatch: pytest.MonkeyPatch, patience_s: float, looks: list[float], cpus: int
) -> None:
    monkeypatch.setattr(cluster, "_FREE_WAIT_S", 20.0)
    monkeypatch.setattr(released, "WAIT_S", patience_s)
    Running(Ray(start_timeout=5.0)).close()
    free = itertools.chain(looks, itertools.repeat(looks[-1]))
    monkeypatch.setattr(nodes, "living", lambda: [a_node("a")._replace(free=next(free))])
    again = Running(Ray(start_timeout=5.0))
    assert [node.cpus for node in again.cluster._nodes.values()] == [cpus]
    again.close()


def test_an_agent_without_a_reservation_ends_after_a_look(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(released, "_nodes", {})
    place = a_node("a")
    released.reserve(place, 0)
    assert released.shown_free([place])
    released.release(place.id, 0)
    assert released.shown_free([place])

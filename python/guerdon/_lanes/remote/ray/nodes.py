"""The nodes of a Ray cluster as Ray lists them: those alive, their names, their free CPUs, and
those that are about to end."""

from __future__ import annotations

from typing import Any, NamedTuple

__all__ = ["RayNode", "chosen", "living"]


class RayNode(NamedTuple):
    """One node that is alive.

    Attributes:
        id: Ray's.
        name: Unique: the one it was given, else its address, with a part of the id where several
            nodes share it.
        address: Its IP address.
        given: The name it was given, or its address.
        cpus: Its CPUs for Ray.
        free: Of them, those that nothing has reserved.
        draining: It is to end: it was drained, or its machine is preempted.
    """

    id: str
    name: str
    address: str
    given: str
    cpus: float
    free: float
    draining: bool


def living() -> list[RayNode]:
    """All nodes that are alive, in the order of their names."""
    import ray
    from ray._private import state

    alive: list[dict[str, Any]] = [node for node in ray.nodes() if node["Alive"]]
    free: dict[str, dict[str, float]] = state.available_resources_per_node()
    # Ray shows it to its own libraries alone; without it a node that drains is used until it ends.
    draining: dict[str, int] = getattr(state.state, "get_draining_nodes", dict)()
    given = [str(node.get("NodeName") or node["NodeManagerAddress"]) for node in alive]
    nodes = []
    for node, called in zip(alive, given, strict=True):
        name = called if given.count(called) == 1 else f"{called}-{node['NodeID'][:6]}"
        cpus = float(node["Resources"].get("CPU", 0))
        unused = float(free.get(node["NodeID"], {}).get("CPU", 0))
        ends = node["NodeID"] in draining
        nodes.append(RayNode(node["NodeID"], name, node["NodeManagerAddress"], called, cpus, unused, ends))
    return sorted(nodes, key=lambda node: node.name)


def chosen(nodes: list[RayNode], wanted: int | tuple[str, ...] | None) -> list[RayNode]:
    """Those of `nodes` that `Ray.nodes` names; a number is the caller's to apply."""
    if not isinstance(wanted, tuple):
        return nodes
    return [node for node in nodes if not {node.id, node.name, node.address, node.given}.isdisjoint(wanted)]

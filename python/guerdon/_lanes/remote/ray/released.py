"""CPUs that agents of this process have given back and that Ray does not show as free yet: Ray
takes a moment to notice the end of an actor, and agents started meanwhile would find too few.

The free CPUs are computed from those that were free before this process reserved some: where others
have taken them since, nobody waits for longer than `WAIT_S`.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from guerdon._lanes.remote.ray.nodes import RayNode

__all__ = ["release", "reserve", "shown_free"]

WAIT_S: Final = 5.0


@dataclass
class _Reservations:
    """The reservations of one node.

    Attributes:
        free: CPUs that are free there without this process.
        held: Those that this process has reserved.
        released: When it gave some back last, by the monotonic clock.
    """

    free: float
    held: int = 0
    released: float = 0.0


_lock: Final = threading.Lock()
# Reservations by Ray's ids of the nodes; under the lock.
_nodes: Final[dict[str, _Reservations]] = {}


def reserve(node: RayNode, cpus: int) -> None:
    """Records that an agent reserves `cpus` CPUs of a node; 0 if it reserves none in Ray."""
    if cpus == 0:
        return
    with _lock:
        known = _nodes.setdefault(node.id, _Reservations(node.free))
        known.free = node.free + known.held
        known.held += cpus


def release(key: str, cpus: int) -> None:
    """Records the end of an agent that had reserved `cpus`."""
    if cpus == 0:
        return
    with _lock:
        known = _nodes[key]  # kept as long as something is held
        known.held -= cpus
        known.released = time.monotonic()


def shown_free(nodes: Iterable[RayNode]) -> bool:
    """Returns whether Ray shows as free what this process gave back on these nodes."""
    now = time.monotonic()
    with _lock:
        for key in [key for key, known in _nodes.items() if known.held == 0 and now - known.released > WAIT_S]:
            del _nodes[key]
        known = [(node, _nodes[node.id]) for node in nodes if node.id in _nodes]
        return all(node.free >= one.free - one.held or now - one.released > WAIT_S for node, one in known)

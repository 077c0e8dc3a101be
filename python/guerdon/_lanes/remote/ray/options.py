"""`Ray`: which nodes of a Ray cluster run a dispatcher's calls; checked where it is written."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from guerdon._system.units import LONGEST, integer, number
from guerdon.errors import RegistrationError, with_known_options

__all__ = ["Ray"]

_MOST_CPUS = 4096
_MOST_NODES = 100_000


@with_known_options
@dataclass(frozen=True)
class Ray:
    """Nodes of a Ray cluster that run a dispatcher's calls (docs/cluster.md).

    Each node gets one agent, an actor with its own workers. The agents start with the first batch,
    and each is checked before any call: its interpreter, its versions, that the functions can be
    imported there, and their ``setup()``.

    Args:
        address: Of the cluster, as for ``ray.init``. By default the cluster that this process is
            connected to already, else the one that ``RAY_ADDRESS`` names or that runs on this
            machine; none is started.
        nodes: How many nodes to use at most, or a list of those to use, each by its name, its
            address or its Ray id. By default all that have a free CPU, also those that come later.
        cpus_per_node: CPUs that each agent reserves, and so its workers. By default what is free on
            the node when its agent starts; where a launcher started several ranks, each of which
            has agents of its own, no more than the node's CPUs divided by the ranks.
        reserve: Whether agents count against the node's CPUs in Ray. False where other actors hold
            all of them and leave them idle; then ``cpus_per_node`` is needed.
        start_timeout: Seconds that the first agents may take to start and to be checked, beyond the
            ``setup_timeout`` of the functions.
        idle_timeout: Seconds without work after which an agent is let go, so that its node can be;
            the last one stays, and a backlog brings the others back. By default agents stay as long
            as the dispatcher.

    Raises:
        RegistrationError: A value can't work.

    Examples:
        >>> Ray(nodes=["node-1", "node-2"], cpus_per_node=16).nodes
        ('node-1', 'node-2')
    """

    address: str | None = None
    nodes: int | tuple[str, ...] | None = None
    cpus_per_node: int | None = None
    reserve: bool = True
    start_timeout: float = 60.0
    idle_timeout: float | None = None

    def __post_init__(self) -> None:
        _check_address(self.address)
        object.__setattr__(self, "nodes", _nodes(self.nodes))
        if self.cpus_per_node is not None:
            object.__setattr__(self, "cpus_per_node", _count("cpus_per_node", self.cpus_per_node, _MOST_CPUS))
        if not isinstance(self.reserve, bool):
            raise _wrong("reserve", self.reserve, "True or False")
        if not self.reserve and self.cpus_per_node is None:
            raise RegistrationError(
                "Ray(reserve=False): an agent without CPUs of its own can't tell how many workers it may have. Give "
                "cpus_per_node=, the workers of each node."
            )
        object.__setattr__(self, "start_timeout", _seconds("start_timeout", self.start_timeout))
        if self.idle_timeout is not None:
            object.__setattr__(self, "idle_timeout", _seconds("idle_timeout", self.idle_timeout))


def _check_address(value: object) -> None:
    if value is None:
        return
    if not isinstance(value, str) or not value.strip():
        raise _wrong("address", value, "an address such as '10.0.0.1:6379' or 'auto', or None")
    if value.startswith("ray://"):
        raise RegistrationError(
            f"Ray(address={value!r}): a Ray Client has no object store on this machine, so that every batch would go "
            "through its proxy. Run the trainer on a node of the cluster, without address=."
        )


def _nodes(value: object) -> int | tuple[str, ...] | None:
    if value is None:
        return None
    if integer(value) is not None:
        return _count("nodes", value, _MOST_NODES)
    expected = "how many nodes, or a list of their names, addresses or ids"
    if isinstance(value, (str, bytes, bool, Mapping)) or not isinstance(value, Iterable):
        raise _wrong("nodes", value, expected)
    names = tuple(value)
    if not names or not all(isinstance(name, str) and name.strip() for name in names):
        raise _wrong("nodes", value, expected)
    if len(set(names)) < len(names):
        raise _wrong("nodes", value, "each node once")
    return names


def _count(option: str, value: object, most: int) -> int:
    count = integer(value)
    if count is None or not 1 <= count <= most:
        raise _wrong(option, value, f"a whole number from 1 to {most}")
    return count


def _seconds(option: str, value: object) -> float:
    found = number(value)
    if not 0 < found < math.inf or found > LONGEST:
        raise _wrong(option, value, "seconds, finite and above 0")
    return found


def _wrong(option: str, value: object, expected: str) -> RegistrationError:
    return RegistrationError(f"Ray({option}={value!r}): expected {expected}.")

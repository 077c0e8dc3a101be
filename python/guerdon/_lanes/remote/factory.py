"""The ``cluster=`` option of a dispatcher: checked when the dispatcher is made, and made into a
cluster for each engine that it starts."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Literal, TypeAlias

from guerdon._lanes.remote.ray import connection
from guerdon._lanes.remote.ray.options import Ray
from guerdon._system.cpu_count import default_workers, host_workers
from guerdon._system.launcher import ranks_on_host, world_size
from guerdon.errors import RegistrationError

if TYPE_CHECKING:
    from guerdon._functions.spec import FunctionSpec
    from guerdon._lanes.remote.plan import Cluster, ClusterFactory

__all__ = ["ClusterOption", "checked_cluster", "factory_of", "own_workers", "workers_of"]

ClusterOption: TypeAlias = Literal["host"] | Ray


def checked_cluster(value: object) -> ClusterOption:
    """Returns the checked option.

    Raises:
        RegistrationError: It is not a cluster, or what it needs is not there.
    """
    if isinstance(value, Ray):
        connection.check_installed()
        return value
    if value == "host":
        return "host"
    hint = " Write guerdon.Ray()." if value is Ray or value == "ray" else ""
    raise RegistrationError(
        f"cluster={value!r}: expected 'host', a guerdon.Ray(…), or None for this process's workers.{hint}"
    )


def factory_of(cluster: ClusterOption, workers: int, specs: Sequence[FunctionSpec]) -> ClusterFactory:
    """Makes the cluster of an engine.

    Args:
        cluster: As `checked_cluster` gave it.
        workers: Those that all ranks of this host share.
        specs: The functions of the dispatcher.
    """
    # One after another, where a node is checked.
    setup_timeout = sum(spec.policy.setup_timeout for spec in specs if spec.leaves_process and spec.stateful)

    def make() -> Cluster:
        if isinstance(cluster, Ray):
            from guerdon._lanes.remote.ray.cluster import RayCluster

            return RayCluster(cluster, setup_timeout, shares=world_size())
        from guerdon._lanes.remote.shared_engine.cluster import SharedEngine

        return SharedEngine(workers, [spec.name for spec in specs])

    return make


def workers_of(cluster: ClusterOption | None) -> int:
    """Workers of a dispatcher that was not given any."""
    return host_workers() if cluster == "host" else default_workers()


def own_workers(cluster: ClusterOption | None, workers: int) -> int:
    """Number of a dispatcher's workers in this process: this rank's share, if all ranks of the host
    share them."""
    return max(1, workers // ranks_on_host()) if cluster == "host" else workers

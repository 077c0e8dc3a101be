"""The option ``cluster=`` of a dispatcher; it alone loads `guerdon._lanes.remote`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from guerdon._system.cpu_count import default_workers

if TYPE_CHECKING:
    from guerdon._functions.spec import FunctionSpec
    from guerdon._lanes.remote.factory import ClusterOption
    from guerdon._lanes.remote.plan import ClusterFactory

__all__ = ["checked_cluster", "with_limits", "workers_and_cluster"]


def checked_cluster(value: object) -> ClusterOption | None:
    """Returns the checked place of the calls; None = in this process's workers."""
    if value is None:
        return None
    from guerdon._lanes.remote import factory

    return factory.checked_cluster(value)


def with_limits(cluster: ClusterOption | None, specs: tuple[FunctionSpec, ...]) -> tuple[FunctionSpec, ...]:
    """The functions, with limits that hold for all that share an engine."""
    if cluster != "host":
        return specs
    from guerdon._lanes.remote.shared_engine.shared_limits import share_limits

    return share_limits(specs)


def workers_and_cluster(
    workers: int | None, cluster: ClusterOption | None, specs: Sequence[FunctionSpec]
) -> tuple[int, int, ClusterFactory | None]:
    """Workers in all, those of this process itself, and what makes the cluster.

    Args:
        workers: As the dispatcher was given them.
        cluster: As `checked_cluster` gave it.
        specs: The functions of the dispatcher.
    """
    if cluster is None:
        own = workers or default_workers()
        return own, own, None
    from guerdon._lanes.remote import factory

    all_workers = workers or factory.workers_of(cluster)
    return all_workers, factory.own_workers(cluster, all_workers), factory.factory_of(cluster, all_workers, specs)

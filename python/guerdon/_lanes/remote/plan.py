"""Plan of a dispatcher's ``cluster=``: one object for each engine that it starts."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Protocol, TypeAlias

if TYPE_CHECKING:
    from guerdon._lanes.remote.engine_setup import EngineSetup
    from guerdon._native import Engine

__all__ = ["Cluster", "ClusterFactory"]


class Cluster(Protocol):
    """The nodes of one engine, and what connects them to it."""

    def start(self, engine: Engine, setup: EngineSetup) -> None:
        """Adds the present nodes, after the engine was made and before its first batch.

        It serves their links on separate threads. An exception here is raised by the batch that
        started the engine, which is then closed.
        """

    def stop(self) -> None:
        """Ends all that `start` began; the engine is closed, and its links with it."""


ClusterFactory: TypeAlias = Callable[[], Cluster]
"""Makes the cluster of an engine."""

"""Gives batches their engine."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from guerdon._native import Engine

__all__ = ["EngineSource"]


class EngineSource(Protocol):
    """The engine of one dispatcher, which starts with its first use."""

    @property
    def closed(self) -> bool:
        """True once its dispatcher was closed."""

    @property
    def started(self) -> Engine | None:
        """The running engine, if there is one."""

    def get(self) -> Engine:
        """The engine, started if need be.

        Raises:
            ClosedError: The dispatcher was closed.
        """

    async def astart(self, owner: object) -> None:
        """`get` beside the running loop; `owner` is the dispatcher, held meanwhile."""

"""The nodes of an engine as `Dispatcher.stats` shows them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from guerdon._native import Engine

__all__ = ["nodes_of"]


def nodes_of(engine: Engine) -> dict[str, dict[str, Any]]:
    """Returns for each node, by name, its state, its calls and its counters."""
    return {
        node["name"]: {
            "state": node["state"],
            "slots": node["slots"],
            "calls": node["calls"],
            "ended": node["ended"],
            "reason": node["reason"],
            **node["stats"],
        }
        for node in engine.nodes()
    }

"""Figures in `Dispatcher.stats` beside the engine's counters: nodes, caches and usage, by name."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from guerdon.results.usage import usage_of

if TYPE_CHECKING:
    from guerdon._functions.spec import FunctionSpec
    from guerdon._native import Engine

__all__ = ["stats_by_name"]


def stats_by_name(
    engine: Engine, specs: Sequence[FunctionSpec], priced: Mapping[str, bool], *, on_nodes: bool
) -> dict[str, Any]:
    """The nodes, caches and usage of a running engine.

    Args:
        engine: The engine.
        specs: Its functions.
        priced: Names of those that send requests, and whether they have a price.
        on_nodes: Whether its calls run in a cluster.
    """
    stats: dict[str, Any] = {}
    if on_nodes:
        from guerdon._lanes.remote.snapshots import nodes_of  # not by `import guerdon`

        stats["nodes"] = nodes_of(engine)
    if any(spec.pure for spec in specs):
        stats["cache"] = {
            spec.name: dict(zip(("shared", "hits", "misses"), counts, strict=True))
            for spec, counts in zip(specs, engine.call_counts(), strict=True)
            if spec.pure
        }
    if priced:
        used = zip((spec.name for spec in specs), engine.usage(), strict=True)
        stats["usage"] = {name: usage_of(usage, priced[name]) for name, usage in used if name in priced}
    return stats

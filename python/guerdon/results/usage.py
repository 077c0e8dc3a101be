"""Usage of judges and reward services, as results and statistics show it."""

from __future__ import annotations

import math
from collections.abc import Mapping

# Entries in the order in which they are shown; the engine counts all of them.
NAMES = (
    "requests",
    "unknown",
    "prompt_tokens",
    "cached_tokens",
    "completion_tokens",
    "reasoning_tokens",
    "cost",
)


def usage_text(used: Mapping[str, float]) -> str:
    """Returns the usage of requests as text: ``"9 requests: 80,211 prompt + 4,096 completion
    tokens, cost 0.04"``, or ``"9 requests, tokens unknown"`` of a service that reports none."""
    if used["unknown"] == used["requests"] and used["cost"] != used["cost"]:
        return f"{int(used['requests']):,} requests, tokens unknown"
    parts = [f"{int(used['prompt_tokens']):,} prompt + {int(used['completion_tokens']):,} completion tokens"]
    for key, what in (("cached_tokens", "cached"), ("reasoning_tokens", "of reasoning")):
        if used[key]:
            parts.append(f"{int(used[key]):,} {what}")
    if used["cost"] == used["cost"]:
        parts.append(f"cost {used['cost']:.4g}")
    if used["unknown"]:
        parts.append(f"{int(used['unknown']):,} requests unknown")
    return f"{int(used['requests']):,} requests: {', '.join(parts)}"


def add_usage(one: dict[str, float], other: Mapping[str, float]) -> None:
    """Adds what other requests used."""
    for key, value in other.items():
        one[key] = one.get(key, 0) + value


def usage_of(counted: Mapping[str, float] | None, priced: bool) -> dict[str, float]:
    """Returns the usage that the engine `counted` for a function: counts as ints, the cost NaN
    without a price."""
    shown: dict[str, float] = {name: int(counted[name]) if counted else 0 for name in NAMES[:-1]}
    shown["cost"] = math.nan if not priced else counted["cost"] if counted else 0.0
    return shown

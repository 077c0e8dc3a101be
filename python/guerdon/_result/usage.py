"""What judges and reward services used, as results and statistics show it."""

from __future__ import annotations

import math
from collections.abc import Mapping

# In the order in which they are shown; the engine counts all of them.
NAMES = (
    "requests",
    "unknown",
    "prompt_tokens",
    "cached_tokens",
    "completion_tokens",
    "reasoning_tokens",
    "cost",
)


def usage_of(counted: Mapping[str, float] | None, priced: bool) -> dict[str, float]:
    """What the engine `counted` for a function: counts as ints, the cost NaN without a price."""
    shown: dict[str, float] = {name: int(counted[name]) if counted else 0 for name in NAMES[:-1]}
    shown["cost"] = math.nan if not priced else counted["cost"] if counted else 0.0
    return shown

"""Percentiles of run times, and by the length of what was scored."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np

__all__ = ["Times", "by_length", "times_of"]

_BUCKETS: Final = 4


@dataclass(frozen=True)
class Times:
    """Run times in seconds; of completions of `shortest` to `longest` characters."""

    rows: int
    p50: float
    p90: float
    p99: float
    max: float
    shortest: int
    longest: int

    def to_dict(self) -> dict[str, Any]:
        """As JSON has it."""
        seconds = {"p50_s": self.p50, "p90_s": self.p90, "p99_s": self.p99, "max_s": self.max}
        return {"characters": [self.shortest, self.longest], "rows": self.rows, **seconds}


def times_of(seconds: Sequence[float], lengths: Sequence[int]) -> Times | None:
    """Of all rows; None without any."""
    if not seconds:
        return None
    p50, p90, p99 = (float(each) for each in np.quantile(seconds, (0.5, 0.9, 0.99)))
    return Times(len(seconds), p50, p90, p99, max(seconds), min(lengths), max(lengths))


def by_length(seconds: Sequence[float], lengths: Sequence[int]) -> list[Times]:
    """Up to four buckets of about as many rows, the shortest completions first; rows of one length
    are in one bucket."""
    order = sorted(range(len(lengths)), key=lengths.__getitem__)
    buckets: list[list[int]] = []
    for place, row in enumerate(order):
        full = place * _BUCKETS // len(order) >= len(buckets)
        if not buckets or (full and lengths[row] != lengths[order[place - 1]]):
            buckets.append([])
        buckets[-1].append(row)
    found = (times_of([seconds[row] for row in rows], [lengths[row] for row in rows]) for rows in buckets)
    return [times for times in found if times is not None]

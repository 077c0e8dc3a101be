"""Percentiles of run times."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

__all__ = ["Times", "times_of"]


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

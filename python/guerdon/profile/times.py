"""Percentiles of run times."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

__all__ = ["Times", "times_of"]


@dataclass(frozen=True)
class Times:
    """Run times in seconds."""

    rows: int
    p50: float
    p90: float
    p99: float
    max: float

    def to_dict(self) -> dict[str, Any]:
        """As JSON has it."""
        return {"rows": self.rows, "p50_s": self.p50, "p90_s": self.p90, "p99_s": self.p99, "max_s": self.max}


def times_of(seconds: Sequence[float]) -> Times | None:
    """Of all rows; None without any."""
    if not seconds:
        return None
    p50, p90, p99 = (float(each) for each in np.quantile(seconds, (0.5, 0.9, 0.99)))
    return Times(len(seconds), p50, p90, p99, max(seconds))

"""Tests if a judge's scores differ between two forms of the same answers, beyond chance."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import comb
from typing import Final

import numpy as np

__all__ = ["CHANCE", "Shift", "shift_of", "sign_test"]

CHANCE: Final = 0.01
"""A shift with a smaller p is not chance."""

_LEAST_SHARE: Final = 0.05


@dataclass(frozen=True)
class Shift:
    """Effect of another form of the same answers on their scores.

    Attributes:
        mean: Mean difference of the scores, other form minus own.
        up, down: Rows that score higher, and lower.
        p: Of a sign test, two-sided: how likely such a split is by chance.
        share: The mean difference as a share of the range of all scores.
    """

    rows: int
    mean: float
    up: int
    down: int
    p: float
    share: float

    @property
    def clear(self) -> bool:
        """Returns whether it is beyond chance, and large enough to matter."""
        return self.p < CHANCE and abs(self.share) >= _LEAST_SHARE

    def to_dict(self) -> dict[str, float]:
        """Its form in JSON."""
        return {
            "rows": self.rows,
            "mean_shift": self.mean,
            "share_of_range": self.share,
            "up": self.up,
            "down": self.down,
            "p": self.p,
        }


def shift_of(own: Sequence[float], other: Sequence[float]) -> Shift:
    """The shift from `own` to `other`, row by row; NaN where a row has no score."""
    before, after = np.asarray(own, dtype=float), np.asarray(other, dtype=float)
    both = ~(np.isnan(before) | np.isnan(after))
    before, after = before[both], after[both]
    if not len(before):
        return Shift(0, 0.0, 0, 0, 1.0, 0.0)
    difference = after - before
    up, down = int((difference > 0).sum()), int((difference < 0).sum())
    scores = np.concatenate([before, after])
    reach = float(scores.max() - scores.min())
    mean = float(difference.mean())
    return Shift(len(before), mean, up, down, sign_test(up, down), mean / reach if reach > 0 else 0.0)


def sign_test(up: int, down: int) -> float:
    """Returns the probability of a split at least as uneven if both sides are equally likely."""
    tosses = up + down
    if tosses == 0:
        return 1.0
    few = sum(comb(tosses, heads) for heads in range(min(up, down) + 1))
    whole: int = 2**tosses  # beyond 1,000 tosses neither of them is a float
    return min(1.0, 2 * few / whole)

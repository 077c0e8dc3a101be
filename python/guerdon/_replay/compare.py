"""The arithmetic of a diff: plain NumPy on the rewards of samples before and now.

- A reward is a float32, NaN if there is none.
- Two cells are equal if they hold the same number, or neither holds one for the same kind of
  reason.
- Everything adds up over chunks: the sums of a journal's chunks are those of the journal in one.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from guerdon._replay.chunks import ABSENT, failed
from guerdon.results.totals import advantages

if TYPE_CHECKING:
    from numpy.typing import NDArray

__all__ = ["AdvantageChange", "Agreement", "RankChange", "average_ranks"]


@dataclass
class Agreement:
    """Agreement of the cells then and now, for one function or for the total.

    Attributes:
        compared: Cells that both have.
        moved: Those that are not equal, nor numbers within the tolerance of each other.
        failures_to_answers: They had failed, and have not now.
        answers_to_failures: The other way.
    """

    tolerance: float = 0.0
    compared: int = 0
    moved: int = 0
    failures_to_answers: int = 0
    answers_to_failures: int = 0
    _numbers: int = 0
    _sums: tuple[float, float] = (0.0, 0.0)

    def add(
        self,
        old: NDArray[np.float32],
        new: NDArray[np.float32],
        old_status: NDArray[np.uint8],
        new_status: NDArray[np.uint8],
    ) -> NDArray[np.bool_]:
        """Counts cells; those that only one side has are left out.

        Returns: Which of them moved.
        """
        there = (old_status != ABSENT) & (new_status != ABSENT)
        was, fails = failed(old_status), failed(new_status)
        known = np.stack([~np.isnan(old), ~np.isnan(new)])
        both = known.all(axis=0)
        with np.errstate(invalid="ignore"):
            distance = np.abs(new.astype(np.float64) - old)
        apart = there & np.where(both, distance > self.tolerance, (known[0] != known[1]) | (was != fails))
        self.compared += int(there.sum())
        self.moved += int(apart.sum())
        self.failures_to_answers += int((there & was & ~fails).sum())
        self.answers_to_failures += int((there & fails & ~was).sum())
        both &= there
        self._numbers += int(both.sum())
        then, now = (float(each[both].sum(dtype=np.float64)) for each in (old, new))
        self._sums = self._sums[0] + then, self._sums[1] + now
        return np.asarray(apart)

    @property
    def means(self) -> tuple[float | None, float | None]:
        """Returns the means of the cells that hold numbers then and now: the mean then, and now."""
        then, now = self._sums
        return (then / self._numbers, now / self._numbers) if self._numbers else (None, None)


@dataclass
class RankChange:
    """Change of the order within groups.

    Attributes:
        groups: Whole groups of at least two samples.
        groups_changed: Some sample of it has another rank.
        best_changed: Groups whose best sample or samples are others.
    """

    groups: int = 0
    groups_changed: int = 0
    best_changed: int = 0

    def add(self, old: NDArray[np.float32], new: NDArray[np.float32]) -> None:
        """Counts groups, ``[P, G]``."""
        if old.shape[1] < 2:
            return
        before, after = average_ranks(old), average_ranks(new)
        changed = ~((before == after) | (np.isnan(before) & np.isnan(after)))
        self.groups += len(old)
        self.groups_changed += int(changed.any(axis=1).sum())
        self.best_changed += int((_best(old) != _best(new)).any(axis=1).sum())


@dataclass
class AdvantageChange:
    """Change of GRPO's advantages, ``(r - mean) / (std + 1e-4)`` in the group, for samples of whole
    groups.

    Attributes:
        samples: How many.
        changed: By more than the tolerance, at least by 1e-6.
        flipped: From above 0 to below, or the other way.
    """

    tolerance: float = 0.0
    samples: int = 0
    changed: int = 0
    flipped: int = 0
    _sum: float = 0.0

    def add(self, old: NDArray[np.float32], new: NDArray[np.float32]) -> None:
        """Counts groups, ``[P, G]`` totals."""
        before, after = advantages(old, "group"), advantages(new, "group")
        change = np.abs(after.astype(np.float64) - before)
        self.samples += change.size
        self.changed += int((change > max(self.tolerance, 1e-6)).sum())
        self.flipped += int((np.sign(before) * np.sign(after) < 0).sum())
        self._sum += float(change.sum())

    @property
    def mean_change(self) -> float | None:
        return self._sum / self.samples if self.samples else None


def average_ranks(values: NDArray[np.float32]) -> NDArray[np.float64]:
    """``[P, G]``: the rank of each value in its group, 1 for the largest; equal values share the
    mean of their ranks; The rank of a cell without a value is NaN."""
    above = (values[:, None, :] > values[:, :, None]).sum(axis=2)
    same = (values[:, None, :] == values[:, :, None]).sum(axis=2)
    return np.where(np.isnan(values), np.nan, 1 + above + (same - 1) / 2)


def _best(values: NDArray[np.float32]) -> NDArray[np.bool_]:
    """``[P, G]``: whether a value is its group's largest."""
    filled = np.where(np.isnan(values), -np.inf, values)
    return np.asarray((filled == filled.max(axis=1, keepdims=True)) & ~np.isnan(values))

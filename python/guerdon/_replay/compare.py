"""The arithmetic of a diff: plain NumPy on the rewards of samples before and now.

- A reward is a float32, NaN if there is none; `kinds` has the reason.
- Two cells are equal if they hold the same number, or neither holds one for the same kind of
  reason.
- Everything adds up over chunks: the sums of a journal's chunks are those of the journal in one.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import numpy as np

from guerdon._replay.chunks import ABSENT
from guerdon.results.status import Status
from guerdon.results.totals import advantages

if TYPE_CHECKING:
    from numpy.typing import NDArray

__all__ = ["NUMBER", "AdvantageChange", "Agreement", "RankChange", "average_ranks", "kinds", "moved"]

NUMBER: Final = 0
_NONE: Final = 1
_FAILED: Final = 2


def kinds(reward: NDArray[np.float32], status: NDArray[np.uint8]) -> NDArray[np.uint8]:
    """Returns for each cell: `NUMBER`, or why it holds none: failed, or abstained and skipped
    alike."""
    failed = (status >= Status.TIMEOUT) & (status <= Status.CANCELLED)
    return np.where(~np.isnan(reward), NUMBER, np.where(failed, _FAILED, _NONE)).astype(np.uint8)


def moved(
    old: NDArray[np.float32],
    new: NDArray[np.float32],
    old_kind: NDArray[np.uint8],
    new_kind: NDArray[np.uint8],
    tolerance: float,
) -> NDArray[np.bool_]:
    """The cells that differ: numbers by more than `tolerance`, or in kind."""
    both = (old_kind == NUMBER) & (new_kind == NUMBER)
    with np.errstate(invalid="ignore"):
        apart = np.abs(new.astype(np.float64) - old.astype(np.float64)) > tolerance
    return np.asarray(np.where(both, apart, old_kind != new_kind))


@dataclass
class Agreement:
    """Agreement of the cells then and now, for one function or for the total.

    Attributes:
        compared: Cells that both have.
        equal: The same number, or both none for the same kind of reason.
        within: Equal, or numbers no farther apart than the tolerance.
        failures_to_answers: They had failed, and have not now.
        answers_to_failures: The other way.
    """

    tolerance: float = 0.0
    compared: int = 0
    equal: int = 0
    within: int = 0
    failures_to_answers: int = 0
    answers_to_failures: int = 0
    largest: float = 0.0
    _n: int = 0
    _mean_x: float = 0.0
    _mean_y: float = 0.0
    _xx: float = 0.0
    _yy: float = 0.0
    _xy: float = 0.0
    _apart: float = 0.0

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
        old_kind, new_kind = kinds(old, old_status), kinds(new, new_status)
        differ = moved(old, new, old_kind, new_kind, 0.0) & there
        apart = moved(old, new, old_kind, new_kind, self.tolerance) & there
        was, fails = _failed(old_status) & there, _failed(new_status) & there
        self.compared += int(there.sum())
        self.equal += int(there.sum() - differ.sum())
        self.within += int(there.sum() - apart.sum())
        self.failures_to_answers += int((was & ~fails).sum())
        self.answers_to_failures += int((fails & ~was).sum())
        both = there & (old_kind == NUMBER) & (new_kind == NUMBER)
        self._correlate(old[both].astype(np.float64), new[both].astype(np.float64))
        return np.asarray(apart)

    def _correlate(self, x: NDArray[np.float64], y: NDArray[np.float64]) -> None:
        """Adds pairs: Chan's way of joining sums of squares, which loses no digits."""
        n = len(x)
        if not n:
            return
        distance = np.abs(y - x)
        self._apart += float(distance.sum())
        self.largest = max(self.largest, float(distance.max()))
        mean_x, mean_y = float(x.mean()), float(y.mean())
        dx, dy, total = mean_x - self._mean_x, mean_y - self._mean_y, self._n + n
        share = self._n * n / total
        self._xx += float(((x - mean_x) ** 2).sum()) + dx * dx * share
        self._yy += float(((y - mean_y) ** 2).sum()) + dy * dy * share
        self._xy += float(((x - mean_x) * (y - mean_y)).sum()) + dx * dy * share
        self._mean_x += dx * n / total
        self._mean_y += dy * n / total
        self._n = total

    @property
    def correlation(self) -> float | None:
        """Pearson's, of the cells that hold numbers then and now; None where one side never
        varies."""
        if self._n < 2 or self._xx <= 0 or self._yy <= 0:
            return None
        return max(-1.0, min(1.0, self._xy / float(np.sqrt(self._xx) * np.sqrt(self._yy))))

    @property
    def means(self) -> tuple[float | None, float | None]:
        """Returns the means of the cells that hold numbers then and now: the mean then, and now."""
        return (self._mean_x, self._mean_y) if self._n else (None, None)

    @property
    def mean_change(self) -> float | None:
        """Mean of the absolute change of the cells that hold numbers then and now."""
        return self._apart / self._n if self._n else None


@dataclass
class RankChange:
    """Change of the order within groups.

    Attributes:
        groups: Whole groups of at least two samples.
        groups_changed: Some sample of it has another rank.
        samples_changed: Their samples with another rank.
        best_changed: Groups whose best sample or samples are others.
    """

    groups: int = 0
    groups_changed: int = 0
    samples_changed: int = 0
    best_changed: int = 0

    def add(self, old: NDArray[np.float32], new: NDArray[np.float32]) -> None:
        """Counts groups, ``[P, G]``."""
        if old.shape[1] < 2:
            return
        before, after = average_ranks(old), average_ranks(new)
        changed = ~((before == after) | (np.isnan(before) & np.isnan(after)))
        self.groups += len(old)
        self.groups_changed += int(changed.any(axis=1).sum())
        self.samples_changed += int(changed.sum())
        self.best_changed += int((_best(old) != _best(new)).any(axis=1).sum())


@dataclass
class AdvantageChange:
    """Change of GRPO's advantages, for samples of whole groups.

    Attributes:
        scale: ``"group"``: divided by the group's standard deviation + 1e-4; ``"none"``: not.
        samples: How many.
        changed: By more than the tolerance, at least by 1e-6.
        flipped: From above 0 to below, or the other way.
        largest: The largest absolute change.
    """

    scale: str
    tolerance: float = 0.0
    samples: int = 0
    changed: int = 0
    flipped: int = 0
    largest: float = 0.0
    _sum: float = 0.0

    def add(self, old: NDArray[np.float32], new: NDArray[np.float32]) -> None:
        """Counts groups, ``[P, G]`` totals."""
        before, after = advantages(old, self.scale), advantages(new, self.scale)
        change = np.abs(after.astype(np.float64) - before)
        self.samples += change.size
        self.changed += int((change > max(self.tolerance, 1e-6)).sum())
        self.flipped += int((np.sign(before) * np.sign(after) < 0).sum())
        self.largest = max(self.largest, float(change.max(initial=0.0)))
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


def _failed(status: NDArray[np.uint8]) -> NDArray[np.bool_]:
    return np.asarray((status >= Status.TIMEOUT) & (status <= Status.CANCELLED))

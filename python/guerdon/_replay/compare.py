"""The arithmetic of a diff: plain NumPy on the rewards of samples before and now.

- A reward is a float32, NaN if there is none.
- Two cells are equal if they hold the same number, or neither holds one for the same kind of
  reason.
- Everything adds up over chunks: the sums of a journal's chunks are those of the journal in one.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from guerdon._replay.chunks import ABSENT, failed
from guerdon.results.totals import advantages

if TYPE_CHECKING:
    from numpy.typing import NDArray

__all__ = ["Comparison", "average_ranks"]


class Comparison:
    """Counts of one function, or of the total, then and now.

    Attributes:
        compared: Cells that both have.
        moved: Those that are not equal, nor numbers within the tolerance of each other.
        failures_to_answers: They had failed, and have not now; `answers_to_failures` the other way.
        groups: Whole groups of at least two samples.
        groups_changed: Some sample of it has another rank.
        best_changed: Groups whose best sample or samples are others.
        samples: Samples of whole groups, whose advantages are GRPO's,
            ``(r - mean) / (std + 1e-4)`` in the group.
        changed: Advantages that changed by more than the tolerance, at least by 1e-6.
        flipped: Those that went from above 0 to below, or the other way.
    """

    def __init__(self, tolerance: float = 0.0) -> None:
        self.tolerance = tolerance
        self.compared = self.moved = self.failures_to_answers = self.answers_to_failures = 0
        self.groups = self.groups_changed = self.best_changed = 0
        self.samples = self.changed = self.flipped = 0
        self._numbers = 0
        self._then = self._now = self._change = 0.0

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
        self._then += float(old[both].sum(dtype=np.float64))
        self._now += float(new[both].sum(dtype=np.float64))
        return np.asarray(apart)

    def add_groups(self, old: NDArray[np.float32], new: NDArray[np.float32], size: int) -> None:
        """Counts whole groups; one value a sample."""
        old, new = old.reshape(-1, size), new.reshape(-1, size)
        if size > 1:
            ranks, now = average_ranks(old), average_ranks(new)
            self.groups += len(old)
            self.groups_changed += int((~((ranks == now) | (np.isnan(ranks) & np.isnan(now)))).any(axis=1).sum())
            self.best_changed += int((_best(old) != _best(new)).any(axis=1).sum())
        before, after = advantages(old, "group"), advantages(new, "group")
        change = np.abs(after.astype(np.float64) - before)
        self.samples += change.size
        self.changed += int((change > max(self.tolerance, 1e-6)).sum())
        self.flipped += int((np.sign(before) * np.sign(after) < 0).sum())
        self._change += float(change.sum())

    def to_dict(self) -> dict[str, Any]:
        """Its form in JSON; the means are of the cells that hold numbers then and now."""
        return {
            "compared": self.compared,
            "moved": self.moved,
            "mean": {"journal": _mean(self._then, self._numbers), "now": _mean(self._now, self._numbers)},
            "failures_to_answers": self.failures_to_answers,
            "answers_to_failures": self.answers_to_failures,
            "ranks": {
                "groups": self.groups,
                "groups_changed": self.groups_changed,
                "best_changed": self.best_changed,
            },
            "advantages": {
                "samples": self.samples,
                "changed": self.changed,
                "flipped": self.flipped,
                "mean_change": _mean(self._change, self.samples),
            },
        }


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


def _mean(total: float, count: int) -> float | None:
    return total / count if count else None

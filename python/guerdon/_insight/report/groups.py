"""Figures of groups over their samples, and of samples over their functions.

- A group teaches nothing if all its samples have the same total reward: its advantages are 0.
- A sample on which a function failed has no total, as in training; in parts whose dispatcher had
  ``incomplete="sum"`` it has the sum of the others.
- Rows that belong together may be in two record batches: the rows of the last batch of samples are
  held back until the next one comes, at most `_MOST_HELD` of them.
- Correlations are over all samples for which both functions gave a number.
"""

from __future__ import annotations

from typing import Final

import numpy as np

from guerdon._insight.report.moments import Moments, PairMoments
from guerdon._insight.report.rows import FAILED, Floats, Integers, Rows
from guerdon._insight.report.survey import JournalSurvey

__all__ = ["GroupSpread"]

_MOST_HELD: Final = 1 << 19
_CLOSE: Final = 1e-6

_Columns = dict[str, "Integers | Floats"]


class GroupSpread:
    """Spread of groups by function and bucket, and what correlations need.

    The last "function" is the total reward: the weighted sum over the functions.

    Attributes:
        groups: GroupSpread of at least two rewards, ``[F + 1, B + 1]``.
        same: Of these, groups whose rewards are all the same; `best` and `worst` those of them with
            the highest and the lowest reward that there is.
        total: The total reward by bucket, ``[B + 1]``.
        pairs: Of each pair of functions.
    """

    def __init__(self, known: JournalSurvey) -> None:
        functions, buckets = len(known.functions), len(known.axis) + 1
        # A function without a reward has infinite ends, and a weight of 0 would make NaN of these.
        self.least = np.array([each.least if each.count else 0.0 for each in known.functions])
        self.most = np.array([each.most if each.count else 0.0 for each in known.functions])
        self.groups = np.zeros((functions + 1, buckets), np.int64)
        self.same = np.zeros((functions + 1, buckets), np.int64)
        self.best = np.zeros((functions + 1, buckets), np.int64)
        self.worst = np.zeros((functions + 1, buckets), np.int64)
        self.total = Moments((buckets,))
        self.pairs = PairMoments(functions)
        self._held: _Columns | None = None

    def add(self, rows: Rows) -> None:
        """Adds rows, in the order of their part."""
        columns: _Columns = {
            "writer": rows.writer,
            "batch": rows.batch_id,
            "group": rows.group,
            "sample": rows.sample,
            "function": rows.function,
            "bucket": rows.bucket,
            "reward": rows.reward,
            "weight": rows.weight,
            "failed": _unscorable(rows),
        }
        if self._held is not None:
            columns = {name: np.concatenate([held, columns[name]]) for name, held in self._held.items()}
        keep = (columns["writer"] == columns["writer"][-1]) & (columns["batch"] == columns["batch"][-1])
        if keep.sum() > _MOST_HELD:  # one huge batch: only its last group may go on
            keep &= columns["group"] == columns["group"][-1]
            if keep.sum() > _MOST_HELD:
                keep[:] = False
        self._held = {name: values[keep] for name, values in columns.items()}
        self._count({name: values[~keep] for name, values in columns.items()})

    def finish(self) -> None:
        """Count the rows that were held back."""
        if self._held is not None:
            self._count(self._held)
            self._held = None

    def _count(self, columns: _Columns) -> None:
        if not len(columns["sample"]):
            return
        order = np.lexsort([columns[name] for name in ("sample", "group", "batch", "writer")])
        columns = {name: values[order] for name, values in columns.items()}
        new_group = _changes(columns, "writer", "batch", "group")
        new_sample = new_group | _changes(columns, "sample")
        sample = np.cumsum(new_sample) - 1
        first = np.flatnonzero(new_sample)
        rewards = np.full((len(first), len(self.least)), np.nan)
        weights = np.ones_like(rewards)
        function = columns["function"].astype(np.int64)
        rewards[sample, function] = columns["reward"]
        weights[sample, function] = np.nan_to_num(columns["weight"], nan=1.0)
        rewards[~np.isfinite(rewards)] = np.nan
        bucket = columns["bucket"][first].astype(np.int64)
        starts = np.flatnonzero(new_group[first])
        failed = np.bincount(sample, columns["failed"], len(first)) > 0
        total, least, most = self._totals(rewards, weights)
        total[failed] = np.nan
        known = np.isfinite(total)
        self.total.add(bucket[known], total[known])
        for number in range(rewards.shape[1]):
            ends = np.full(len(total), self.least[number]), np.full(len(total), self.most[number])
            self._count_spread(number, rewards[:, number], starts, bucket, *ends, exact=True)
        self._count_spread(rewards.shape[1], total, starts, bucket, least, most, exact=False)
        self.pairs.add(rewards)

    def _totals(self, rewards: Floats, weights: Floats) -> tuple[Floats, Floats, Floats]:
        """The total reward of each sample, and the least and most that it could be."""
        known = np.isfinite(rewards)
        total = np.where(known, rewards * weights, 0.0).sum(axis=1)
        total[~known.any(axis=1)] = np.nan
        ends = self.least * weights, self.most * weights
        least = np.where(known, np.minimum(*ends), 0.0).sum(axis=1)
        most = np.where(known, np.maximum(*ends), 0.0).sum(axis=1)
        return total, least, most

    def _count_spread(
        self,
        number: int,
        values: Floats,
        starts: Integers,
        bucket: Integers,
        lowest: Floats,
        highest: Floats,
        *,
        exact: bool,
    ) -> None:
        known = np.isfinite(values)
        count = np.add.reduceat(known.astype(np.int64), starts)
        least = np.minimum.reduceat(np.where(known, values, np.inf), starts)
        most = np.maximum.reduceat(np.where(known, values, -np.inf), starts)
        several = count >= 2
        if not several.any():
            return
        near = np.zeros(len(starts)) if exact else _CLOSE * np.maximum(1.0, np.abs(np.where(several, most, 0.0)))
        same = several & (np.where(several, most - least, 1.0) <= near)
        buckets = self.groups.shape[1]
        where = bucket[starts]
        for counts, chosen in (
            (self.groups, several),
            (self.same, same),
            (self.best, same & (least >= highest[starts] - near) & (highest[starts] > lowest[starts])),
            (self.worst, same & (most <= lowest[starts] + near) & (highest[starts] > lowest[starts])),
        ):
            counts[number] += np.bincount(where[chosen], minlength=buckets)


def _unscorable(rows: Rows) -> Integers:
    """Returns whether a row leaves its sample without a total."""
    if rows.facts.is_summed:
        return np.zeros(len(rows), np.int64)
    return np.asarray(FAILED[rows.status] & ~np.isfinite(rows.reward)).astype(np.int64)


def _changes(columns: _Columns, *names: str) -> np.ndarray[tuple[int, ...], np.dtype[np.bool_]]:
    """Returns a mask of the rows that differ from the one before in one of the columns."""
    new = np.zeros(len(columns["sample"]), bool)
    new[0] = True
    for name in names:
        new[1:] |= columns[name][1:] != columns[name][:-1]
    return new

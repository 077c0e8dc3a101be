"""Counts of each function in each bucket of steps.

- Counts, sums, least and most are exact; so are mean and standard deviation.
- Times are counted in bins a twentieth of a decade wide: a percentile is within 6 % of the truth.
- Memory depends on functions and buckets, not on rows.
"""

from __future__ import annotations

from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from guerdon._insight.journal.schema import json_object
from guerdon._insight.report.moments import Moments
from guerdon._insight.report.rows import FAILED, STATUSES, Floats, Integers, Rows, encoded, floats, integers
from guerdon._insight.report.survey import BINS, MOST_VALUES, JournalSurvey

__all__ = ["Tally", "TimeBins"]

_SUMS: Final = ("cost", "prompt_tokens", "completion_tokens")
_ALIKE_S: Final = 2e-5


class TimeBins:
    """Seconds by cell, such as function and bucket, on a logarithmic scale from a microsecond to
    eleven days; and the longest of each cell."""

    PER_DECADE: Final = 20
    LEAST: Final = -6
    COUNT: Final = 12 * 20

    def __init__(self, shape: tuple[int, ...]) -> None:
        self.counts = np.zeros((*shape, self.COUNT), np.int64)
        self.longest = np.zeros(shape)

    def add(self, cell: Integers, seconds: Floats) -> None:
        """Add a time to each of these cells, which are numbered in order."""
        with np.errstate(divide="ignore", invalid="ignore"):
            place = np.floor((np.log10(seconds) - self.LEAST) * self.PER_DECADE)
        bins = np.clip(np.nan_to_num(place, neginf=0), 0, self.COUNT - 1).astype(np.int64)
        self.counts += _counted(cell * self.COUNT + bins, self.counts.shape)
        np.maximum.at(self.longest.reshape(-1), cell, seconds)

    def percentile(self, where: Any, share: float) -> float:
        """Returns the middle of the bin below which `share` of the times in these cells are, but no
        more than the longest of them; NaN without any."""
        below = np.cumsum(self.counts[where].reshape(-1, self.COUNT).sum(axis=0))
        if not below[-1]:
            return float("nan")
        place = int(np.searchsorted(below, share * below[-1], side="left"))
        middle = 10 ** (self.LEAST + (place + 0.5) / self.PER_DECADE)
        return float(min(middle, self.longest[where].max()))


class Tally:
    """Counts by function and bucket; the last bucket is for rows without a step.

    Attributes:
        status: Rows by outcome, shape ``[F, B + 1, len(STATUSES)]``.
        rewards: Those that are numbers, ``[F, B + 1]``; so are `least`, `most` and the
            sums of cost and tokens.
        histogram: Rewards by bin, ``[F, B + 1, bins]``.
        times: `TimeBins` of ``run_s`` and ``queue_s``.
        run_total: Seconds that all calls ran; a call that scored several samples counts once.
        called, attempts: Rows of samples that a call was made for, and the attempts of these calls,
            by function.
        fallbacks: Rows that a judge's fallback scored, by function.
        why: The reason of one of them, by function.
    """

    def __init__(self, known: JournalSurvey) -> None:
        functions, buckets = len(known.functions), len(known.axis) + 1
        self.shape = (functions, buckets)
        self.numbers = known.numbers
        self.edges = [each.edges() for each in known.functions]
        self.values = [each.values for each in known.functions]
        self.status = np.zeros((*self.shape, len(STATUSES)), np.int64)
        self.rewards = Moments(self.shape)
        self.least = np.full(self.shape, np.inf)
        self.most = np.full(self.shape, -np.inf)
        self.histogram = np.zeros((*self.shape, max(BINS, MOST_VALUES)), np.int64)
        self.times = {name: TimeBins(self.shape) for name in ("run_s", "queue_s")}
        self.run_total = np.zeros(self.shape)
        self.called = np.zeros(functions, np.int64)
        self.attempts = np.zeros(functions, np.int64)
        self.sums = {name: np.zeros(self.shape) for name in _SUMS}
        self.fallbacks = np.zeros(functions, np.int64)
        self.why: dict[int, str] = {}
        self.ranks: dict[int, int] = {}
        self.weights = np.full(functions, np.nan)
        self.first: Any = None
        self.last: Any = None
        self.versions: dict[int, dict[str, tuple[int, int]]] = {}

    def add(self, rows: Rows) -> None:
        """Count the rows."""
        place = rows.function * self.shape[1] + rows.bucket
        self.status += _counted(place * len(STATUSES) + rows.status, self.status.shape)
        self._add_rewards(rows, place)
        self._add_times(rows, place)
        for name, sums in self.sums.items():
            given = floats(rows.batch, name)
            known = np.isfinite(given)
            if known.any():
                sums += np.bincount(place[known], given[known], sums.size).reshape(self.shape)
        self._add_fallbacks(rows)
        self._add_places(rows)

    def failed(self) -> Integers:
        """Failed rows, ``[F, B + 1]``."""
        failed: Integers = self.status[:, :, FAILED].sum(axis=2)
        return failed

    def _add_rewards(self, rows: Rows, place: Integers) -> None:
        known = np.isfinite(rows.reward)
        place, reward, function = place[known], rows.reward[known], rows.function[known]
        self.rewards.add(place, reward)
        np.minimum.at(self.least.reshape(-1), place, reward)
        np.maximum.at(self.most.reshape(-1), place, reward)
        bins = np.zeros(len(reward), np.int64)
        for number in range(self.shape[0]):
            mine = function == number
            edges, values = self.edges[number], self.values[number]
            if values is not None:
                bins[mine] = np.clip(np.searchsorted(values, reward[mine]), 0, max(0, len(values) - 1))
            elif edges is not None:
                inner = np.searchsorted(edges, reward[mine], side="right") - 1
                bins[mine] = np.clip(inner, 0, len(edges) - 2)
        self.histogram += _counted(place * self.histogram.shape[2] + bins, self.histogram.shape)

    def _add_times(self, rows: Rows, place: Integers) -> None:
        attempts = integers(rows.batch, "attempts", 1)
        # Not those that were skipped or cancelled before their first call, nor those that got the
        # answer of an identical call, which took them no time.
        called = (attempts > 0) & ~(floats(rows.batch, "run_s") <= 0)
        self.called += np.bincount(rows.function[called], minlength=len(self.called))
        self.attempts += np.bincount(rows.function, np.where(called, attempts, 0), len(self.attempts)).astype(np.int64)
        for name, times in self.times.items():
            seconds = floats(rows.batch, name)
            known = called & np.isfinite(seconds)
            times.add(place[known], seconds[known])
        seconds = np.where(called, np.nan_to_num(floats(rows.batch, "run_s")), 0.0)
        seconds[~_first_of_call(rows, seconds)] = 0.0
        self.run_total += np.bincount(place, seconds, self.run_total.size).reshape(self.shape)

    def _add_fallbacks(self, rows: Rows) -> None:
        import pyarrow.compute as pc

        places = [self.numbers[name] for name in rows.facts.fallbacks if name in self.numbers]
        if not places or "extra" not in rows.batch.schema.names:
            return
        extra = rows.batch.column("extra")
        # Names of fields: within a text the quotes are escaped.
        named = [pc.match_substring(extra, f'"{name}":').fill_null(False) for name in ("by", "failed")]
        found = pc.and_(*named).to_numpy(zero_copy_only=False) & np.isin(rows.function, places)
        self.fallbacks += np.bincount(rows.function[found], minlength=len(self.fallbacks))
        functions, firsts = np.unique(rows.function[found], return_index=True)
        for function, first in zip(functions.tolist(), np.flatnonzero(found)[firsts].tolist(), strict=True):
            self.why.setdefault(function, str(json_object(extra[first].as_py()).get("failed", "")))

    def _add_places(self, rows: Rows) -> None:
        """Ranks, weights, versions and the first and last time."""
        import pyarrow.compute as pc

        ranks, counts = np.unique(integers(rows.batch, "rank"), return_counts=True)
        for rank, count in zip(ranks.tolist(), counts.tolist(), strict=True):
            self.ranks[rank] = self.ranks.get(rank, 0) + count
        weighted = np.isfinite(rows.weight)
        self.weights[rows.function[weighted]] = rows.weight[weighted]
        if "submitted" in rows.batch.schema.names:
            times = pc.min_max(rows.batch.column("submitted")).as_py()
            if times["min"] is not None:
                self.first = times["min"] if self.first is None else min(self.first, times["min"])
                self.last = times["max"] if self.last is None else max(self.last, times["max"])
        self._add_versions(rows)

    def _add_versions(self, rows: Rows) -> None:
        names, number = encoded(rows.batch, "version")
        buckets = self.shape[1]
        seen = np.unique((number * self.shape[0] + rows.function) * buckets + rows.bucket)
        for code in seen.tolist():
            rest, bucket = divmod(code, buckets)
            which, function = divmod(rest, self.shape[0])
            name = names[which]
            if name and bucket < buckets - 1 and len(known := self.versions.setdefault(function, {})) < 50:
                first, last = known.get(name, (bucket, bucket))
                known[name] = (min(first, bucket), max(last, bucket))


def _counted(place: Integers, shape: tuple[int, ...]) -> Integers:
    return np.bincount(place, minlength=int(np.prod(shape))).reshape(shape)


def _first_of_call(rows: Rows, seconds: Floats) -> NDArray[np.bool_]:
    """Returns a mask of one row for each call: the samples of a call have its time, to the
    nanosecond. Very short calls, such as those of kernels, are alike by chance."""
    keys = (rows.writer, rows.batch_id, rows.function, seconds)
    order = np.lexsort(keys[::-1])
    again = np.zeros(len(rows), bool)
    again[order[1:]] = np.logical_and.reduce([key[order[1:]] == key[order[:-1]] for key in keys])
    return ~again | (seconds < _ALIKE_S)

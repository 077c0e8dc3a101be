"""Rows to show: the slowest calls of a run, and those with the lowest and the highest reward of
each function, the latest of each kind."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np

from guerdon._insight.report.rows import NO_STEP, STATUSES, Integers, Rows, floats, integers, number

__all__ = ["Examples", "RowLocation", "Slowest"]

_KEPT: Final = 20
_EXAMPLES: Final = 3


@dataclass(frozen=True)
class RowLocation:
    """Place of a row in the journal.

    Attributes:
        part: Number of the part; `row` its place in it.
        fields: Its place in the run, its outcome and its times, as the figures have them; the step
            is that of the axis, None without one.
    """

    part: int
    row: int
    function: int
    bucket: int
    reward: float
    run_s: float
    fields: dict[str, Any]

    @classmethod
    def of(cls, rows: Rows, row: int) -> RowLocation:
        one = rows.batch.slice(row, 1)
        step, reward, run_s = int(rows.step[row]), float(rows.reward[row]), float(floats(one, "run_s")[0])
        fields = {
            "status": STATUSES[int(rows.status[row])],
            "step": None if step == NO_STEP else step,
            "rank": int(integers(one, "rank")[0]),
            "batch": int(rows.batch_id[row]),
            "group": int(rows.group[row]),
            "sample": int(rows.sample[row]),
            "reward": number(reward),
            "run_s": number(run_s),
            "queue_s": number(float(floats(one, "queue_s")[0])),
            "attempts": int(integers(one, "attempts", 1)[0]),
        }
        return cls(rows.part, int(rows.row[row]), int(rows.function[row]), int(rows.bucket[row]), reward, run_s, fields)


class Slowest:
    """The rows with the longest `run_s`."""

    def __init__(self) -> None:
        self._kept: list[RowLocation] = []

    def add(self, rows: Rows) -> None:
        """Look through the rows."""
        seconds = np.nan_to_num(floats(rows.batch, "run_s"), nan=-1.0)
        least = self._kept[-1].run_s if len(self._kept) == _KEPT else 0.0
        chosen = np.flatnonzero(seconds > least)
        if len(chosen) > _KEPT:
            chosen = chosen[np.argpartition(-seconds[chosen], _KEPT - 1)[:_KEPT]]
        if len(chosen):
            self._kept += [RowLocation.of(rows, row) for row in chosen.tolist()]
            self._kept.sort(key=lambda each: (-each.run_s, each.part, each.row))
            del self._kept[_KEPT:]

    def places(self) -> Sequence[RowLocation]:
        """The slowest first."""
        return self._kept


class Examples:
    """A few rows of each function for people to read.

    Attributes:
        lowest: By function; so is `highest`.
    """

    def __init__(self, functions: int) -> None:
        self.lowest: list[list[RowLocation]] = [[] for _ in range(functions)]
        self.highest: list[list[RowLocation]] = [[] for _ in range(functions)]

    def add(self, rows: Rows) -> None:
        """Look through the rows."""
        known = np.isfinite(rows.reward)
        for function in range(len(self.lowest)):
            mine = np.flatnonzero(known & (rows.function == function))
            if len(mine):
                self._keep(self.lowest[function], rows, mine, 1)
                self._keep(self.highest[function], rows, mine, -1)

    def _keep(self, kept: list[RowLocation], rows: Rows, mine: Integers, sign: int) -> None:
        rewards = sign * rows.reward[mine]
        least = rewards.min()
        if len(kept) == _EXAMPLES and least > max(sign * each.reward for each in kept):
            return
        chosen = mine[np.flatnonzero(rewards == least)[-_EXAMPLES:]]
        kept += [RowLocation.of(rows, row) for row in chosen.tolist()]
        # The extreme first; among the same the latest, which are those of the trained model.
        kept.sort(key=lambda each: (sign * each.reward, -each.bucket, -each.row))
        del kept[_EXAMPLES:]

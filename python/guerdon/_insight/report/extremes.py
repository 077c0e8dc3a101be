"""Rows to look at: the slowest calls, and the lowest and highest rewards of each function."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np

from guerdon._insight.report.rows import NO_STEP, STATUSES, Floats, Rows, floats, integers

__all__ = ["Examples", "Extremes", "RowLocation", "Slowest"]

_SLOWEST: Final = 20
_EXAMPLES: Final = 3


@dataclass(frozen=True)
class RowLocation:
    """Place of a row in the journal and in the run.

    Attributes:
        part: Number of the part; `row` its place in it.
        step: Step or batch, as the axis has it; None without one.
    """

    part: int
    row: int
    function: int
    status: str
    step: int | None
    bucket: int
    rank: int
    batch: int
    group: int
    sample: int
    reward: float
    run_s: float
    queue_s: float
    attempts: int

    @classmethod
    def of(cls, rows: Rows, row: int) -> RowLocation:
        one = rows.batch.slice(row, 1)
        step = int(rows.step[row])
        return cls(
            part=rows.part,
            row=int(rows.row[row]),
            function=int(rows.function[row]),
            status=STATUSES[int(rows.status[row])],
            step=None if step == NO_STEP else step,
            bucket=int(rows.bucket[row]),
            rank=int(integers(one, "rank")[0]),
            batch=int(rows.batch_id[row]),
            group=int(rows.group[row]),
            sample=int(rows.sample[row]),
            reward=float(rows.reward[row]),
            run_s=float(floats(one, "run_s")[0]),
            queue_s=float(floats(one, "queue_s")[0]),
            attempts=int(integers(one, "attempts", 1)[0]),
        )


class Extremes:
    """The rows with the largest values; among the same the latest, which are those of the trained
    model.

    Attributes:
        places: The largest first.
    """

    def __init__(self, kept: int) -> None:
        self._kept = kept
        self._values: list[float] = []
        self.places: list[RowLocation] = []

    def keep(self, rows: Rows, values: Floats) -> None:
        """Look through the rows that have a value, which is NaN for the others."""
        known = np.flatnonzero(np.isfinite(values))
        if len(self.places) == self._kept:
            known = known[values[known] >= self._values[-1]]
        if not len(known):
            return
        chosen = known[np.argsort(values[known], kind="stable")[-self._kept :]]
        found = [*zip(self._values, self.places, strict=True)]
        found += [(float(values[row]), RowLocation.of(rows, row)) for row in chosen.tolist()]
        found.sort(key=lambda each: (-each[0], -each[1].bucket, -each[1].row))
        self._values = [value for value, _ in found[: self._kept]]
        self.places = [place for _, place in found[: self._kept]]


class Slowest(Extremes):
    """The rows with the longest `run_s`."""

    def __init__(self) -> None:
        super().__init__(_SLOWEST)

    def add(self, rows: Rows) -> None:
        """Look through the rows."""
        seconds = floats(rows.batch, "run_s")
        self.keep(rows, np.where(seconds > 0, seconds, np.nan))


class Examples:
    """A few rows of each function for people to read.

    Attributes:
        lowest: By function; so is `highest`.
    """

    def __init__(self, functions: int) -> None:
        self.lowest = [Extremes(_EXAMPLES) for _ in range(functions)]
        self.highest = [Extremes(_EXAMPLES) for _ in range(functions)]

    def add(self, rows: Rows) -> None:
        """Look through the rows."""
        for function, (lowest, highest) in enumerate(zip(self.lowest, self.highest, strict=True)):
            rewards = np.where(rows.function == function, rows.reward, np.nan)
            lowest.keep(rows, -rewards)
            highest.keep(rows, rewards)

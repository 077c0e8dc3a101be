"""The slowest calls, of the whole run and of each eighth of it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from guerdon._insight.report.rows import NO_STEP, STATUSES, Floats, Rows, floats, integers

__all__ = ["RowLocation", "Slowest"]

EIGHTHS: Final = 8
_KEPT: Final = 20
_KEPT_OF_EIGHTH: Final = 6
_KEPT_OF_FUNCTION: Final = 4


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


class Slowest:
    """The rows with the longest `run_s`: of all, of each eighth of the axis, of each function."""

    def __init__(self, functions: int, buckets: int) -> None:
        self._buckets = max(1, buckets)
        self._kept: dict[tuple[str, int], list[RowLocation]] = {}
        self._functions = functions

    def add(self, rows: Rows) -> None:
        """Look through the rows."""
        seconds = np.nan_to_num(floats(rows.batch, "run_s"), nan=-1.0)
        eighth = np.minimum(rows.bucket * EIGHTHS // self._buckets, EIGHTHS - 1)
        self._keep(("all", 0), rows, seconds, np.ones(len(rows), bool), _KEPT)
        for each in np.unique(eighth).tolist():
            self._keep(("eighth", each), rows, seconds, eighth == each, _KEPT_OF_EIGHTH)
        for function in range(self._functions):
            self._keep(("function", function), rows, seconds, rows.function == function, _KEPT_OF_FUNCTION)

    def places(self) -> list[RowLocation]:
        """All that were kept, the slowest first."""
        distinct = {(each.part, each.row): each for kept in self._kept.values() for each in kept}
        return sorted(distinct.values(), key=lambda each: (-each.run_s, each.part, each.row))

    def _keep(self, key: tuple[str, int], rows: Rows, seconds: Floats, among: NDArray[np.bool_], most: int) -> None:
        kept = self._kept.setdefault(key, [])
        least = kept[-1].run_s if len(kept) == most else 0.0
        chosen = np.flatnonzero(among & (seconds > least))
        if len(chosen) > most:
            chosen = chosen[np.argpartition(-seconds[chosen], most - 1)[:most]]
        if len(chosen):
            kept += [RowLocation.of(rows, row) for row in chosen.tolist()]
            kept.sort(key=lambda each: -each.run_s)
            del kept[most:]

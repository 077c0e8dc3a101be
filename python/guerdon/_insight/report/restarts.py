"""Steps that several processes of one rank wrote, one after another: a run that was started again
under its old name, whose rows then count twice."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import numpy as np

from guerdon._insight.report.rows import NO_STEP, Integers, Rows, integers, process_of

__all__ = ["Restarts"]

_MOST_STEPS: Final = 1 << 16
_MOST_WRITERS: Final = 200


@dataclass
class _Process:
    """Its steps, and when its first and its last batch were submitted."""

    steps: Integers = field(default_factory=lambda: np.empty(0, np.int64))
    first: int = np.iinfo(np.int64).max
    last: int = -1

    def add(self, steps: Integers, times: Integers) -> None:
        self.steps = np.union1d(self.steps, steps[steps != NO_STEP])[:_MOST_STEPS]
        times = times[times >= 0]
        if len(times):
            self.first, self.last = min(self.first, int(times.min())), max(self.last, int(times.max()))


class Restarts:
    """The processes that wrote each rank of each run.

    Args:
        runs: Their names, by number.
    """

    def __init__(self, runs: Sequence[str]) -> None:
        self._runs = runs
        self._writers: dict[tuple[int, int], dict[int, _Process]] = {}

    def add(self, rows: Rows) -> None:
        """Take the rows' processes, steps and times."""
        times = integers(rows.batch, "submitted", -1)
        for writer in np.unique(rows.writer).tolist():
            mine = rows.writer == writer
            process, run, rank = process_of(writer, len(self._runs))
            of_rank = self._writers.setdefault((run, rank), {})
            of_rank.setdefault(process, _Process()).add(rows.step[mine], times[mine])

    def to_list(self) -> list[dict[str, Any]]:
        """Returns the restarts of each rank of a run: how many processes wrote which steps
        again."""
        found = []
        for (run, rank), writers in self._writers.items():
            again, count = np.empty(0, np.int64), set()
            ordered = sorted(writers.values(), key=lambda each: each.first)[:_MOST_WRITERS]
            for place, later in enumerate(ordered):
                for number, earlier in enumerate(ordered[:place]):
                    # Processes that write side by side share a step's work.
                    same = np.intersect1d(earlier.steps, later.steps) if earlier.last < later.first else ()
                    if len(same):
                        again = np.union1d(again, same)
                        count |= {number, place}
            if len(again):
                name = self._runs[run] if 0 <= run < len(self._runs) else ""
                steps = {"first": int(again.min()), "last": int(again.max())}
                found.append({"run": name, "rank": rank, "processes": len(count), **steps})
        return found

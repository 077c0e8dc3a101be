"""Failures by reason: their number, their times, and examples.

- Reasons that differ only in numbers and quoted parts count as one.
- Memory is bounded: the most frequent reasons of each function are kept, the rest is counted as
  one.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import Final

import numpy as np

from guerdon._insight.report.rows import FAILED, STATUSES, Rows, encoded
from guerdon._insight.report.slowest import RowLocation

__all__ = ["OTHER", "Failures", "ReasonCount"]

OTHER: Final = "other reasons"
_MOST_REASONS: Final = 500
_MOST_READ: Final = 200_000  # different texts that are compared; more come under OTHER
_EXAMPLES: Final = 3
_VARIES: Final = re.compile(r"0x[0-9a-fA-F]+|\d+(?:[.,_:]\d+)*|'[^'\n]*'|\"[^\"\n]*\"")


@dataclass
class ReasonCount:
    """The failures of a function that have the same reason.

    Attributes:
        reason: The reason of the first of them.
        buckets: How many by bucket.
        examples: The first few.
    """

    function: int
    status: str
    reason: str
    count: int = 0
    buckets: dict[int, int] = field(default_factory=dict)
    examples: list[tuple[RowLocation, str, str | None]] = field(default_factory=list)


class Failures:
    """Failures of all functions by reason."""

    def __init__(self) -> None:
        self.reasons: dict[tuple[int, str, str], ReasonCount] = {}
        self._patterns: dict[str, str] = {}
        self._of_function: dict[int, int] = {}

    def add(self, rows: Rows) -> None:
        """Count the failed rows."""
        chosen = np.flatnonzero(FAILED[rows.status])
        if not len(chosen):
            return
        import pyarrow as pa

        batch = rows.batch.take(pa.array(chosen))
        names, number = encoded(batch, "reason")
        buckets = int(rows.bucket.max()) + 1
        code = number * len(STATUSES) + rows.status[chosen]
        code = (code * (int(rows.function.max()) + 1) + rows.function[chosen]) * buckets + rows.bucket[chosen]
        _, first, counts = np.unique(code, return_index=True, return_counts=True)
        tracebacks = batch.column("traceback") if "traceback" in batch.schema.names else None
        for place, count in zip(first.tolist(), counts.tolist(), strict=True):
            row = int(chosen[place])
            status = STATUSES[int(rows.status[row])]
            text = names[number[place]] or status
            known = self._reason(int(rows.function[row]), status, text)
            known.count += count
            bucket = int(rows.bucket[row])
            known.buckets[bucket] = known.buckets.get(bucket, 0) + count
            if len(known.examples) < _EXAMPLES:
                traceback = None if tracebacks is None else tracebacks[place].as_py()
                known.examples.append((RowLocation.of(rows, row), text, traceback))

    def _reason(self, function: int, status: str, text: str) -> ReasonCount:
        pattern = self._patterns.get(text)
        if pattern is None:
            pattern = _VARIES.sub("#", text.splitlines()[0][:500] if text.strip() else text) or status
            if len(self._patterns) < _MOST_READ:
                self._patterns[text] = pattern
        key = (function, status, pattern)
        if key not in self.reasons and self._of_function.get(function, 0) >= _MOST_REASONS:
            key, text = (function, status, OTHER), OTHER
        if key not in self.reasons:
            self._of_function[function] = self._of_function.get(function, 0) + 1
            self.reasons[key] = ReasonCount(function, status, text)
        return self.reasons[key]

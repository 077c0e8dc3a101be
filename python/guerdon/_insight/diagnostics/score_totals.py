"""Totals of each reward function over any number of batches: values, outcomes, times, reasons.

- The totals of many batches equal those of one batch with all their samples: percentiles are of
  the samples, not of the batches.
- A value counts where the cell holds a number; a failure counts whatever ``on_failure`` made of it.
- It keeps a few bytes for each cell and a bounded number of reasons, never the batches.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import numpy as np

from guerdon.results import Failure, RewardBatch
from guerdon.results.status import Status
from guerdon.results.usage import add_usage, usage_text

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from guerdon._functions.spec import FunctionSpec

__all__ = ["FailureReason", "FunctionSummary", "ScoreTotals", "aligned", "rate_text", "seconds_text"]

_MOST_REASONS: Final = 1000
_SHOWN_REASONS: Final = 3
_REASON_WIDTH: Final = 160


@dataclass(frozen=True)
class FunctionSummary:
    """One function over all samples so far.

    Attributes:
        mean: Of the cells that hold a number; NaN without any.
        std: Their standard deviation with Bessel's correction; NaN with fewer than two.
        counts: Cells by status, indexed by `Status`.
        p50: Seconds that a call ran: half of the samples' calls took no longer. NaN if none ran.
            Likewise p90, p99.
        rate: Samples a second, from its first call's start to its last call's end; NaN if none ran.
    """

    name: str
    mean: float
    std: float
    counts: tuple[int, ...]
    p50: float
    p90: float
    p99: float
    rate: float

    @property
    def samples(self) -> int:
        return sum(self.counts)

    @property
    def failed(self) -> int:
        return sum(self.counts[status] for status in Status if status.failed)

    @property
    def called(self) -> int:
        """Samples that ``run_if`` did not skip."""
        return self.samples - self.counts[Status.SKIPPED]


@dataclass(frozen=True)
class FailureReason:
    """One reason for failures: how often, and on which sample first."""

    status: Status
    reason: str
    count: int
    first: int


class ScoreTotals:
    """Adds up batches of the same functions.

    Attributes:
        samples: Samples of all batches.
        used: What judges and reward services used, by function, as `RewardBatch.usage` has it.

    Examples:
        >>> from guerdon import Dispatcher, reward
        >>> with Dispatcher([reward(lambda text: float(len(text)), name="length")]) as dispatcher:
        ...     totals = ScoreTotals(dispatcher.names)
        ...     totals.add(dispatcher.score(completions=["a", "bcd"]))
        >>> totals.rows()[0].mean, totals.rows()[0].counts[Status.OK]
        (2.0, 2)
    """

    def __init__(self, functions: Sequence[str]) -> None:
        self.functions = tuple(functions)
        self.samples = 0
        count = len(self.functions)
        self._values: list[list[NDArray[np.float32]]] = [[] for _ in range(count)]
        self._run_s: list[list[NDArray[np.float32]]] = [[] for _ in range(count)]
        self._counts = np.zeros((count, len(Status)), dtype=np.int64)
        self._ran = np.zeros(count, dtype=np.int64)
        self._span_s = np.zeros(count)
        self.used: dict[str, dict[str, float]] = {}
        self._reasons: dict[str, dict[tuple[Status, str], list[int]]] = {name: {} for name in self.functions}

    def add(self, result: RewardBatch) -> None:
        """Count one batch of these functions, or of some of them."""
        self._add_failures(result.failures())
        for name, used in result.usage.items():
            add_usage(self.used.setdefault(name, {}), used)
        for place, name in enumerate(result.functions):
            index = self.functions.index(name)
            values = result.rewards[:, :, place].ravel()
            self._values[index].append(values[~np.isnan(values)])
            self._counts[index] += np.bincount(result.status[:, :, place].ravel(), minlength=len(Status))
            run_s, queue_s = result.run_s[:, :, place].ravel(), result.queue_s[:, :, place].ravel()
            ran = run_s > 0
            if ran.any():
                self._run_s[index].append(run_s[ran].astype(np.float32))
                self._ran[index] += int(ran.sum())
                self._span_s[index] += float((queue_s + run_s)[ran].max() - queue_s[ran].min())
        self.samples += len(result)

    def rows(self) -> list[FunctionSummary]:
        """One row for each function, in order."""
        return [self._row(index) for index in range(len(self.functions))]

    def reasons(self, function: str) -> list[FailureReason]:
        """Why samples of `function` failed, the commonest reason first."""
        counted = self._reasons[function].items()
        reasons = [FailureReason(status, reason, count, first) for (status, reason), (count, first) in counted]
        return sorted(reasons, key=lambda reason: (-reason.count, reason.first))

    def breaches(self, specs: Sequence[FunctionSpec], allowed: float) -> list[str]:
        """A message for each of these functions that failed on a larger share than `allowed`."""
        rows = zip(specs, self.rows(), strict=True)
        found = (spec.policy.breach(spec.name, row.failed, row.called, allowed) for spec, row in rows)
        return [message for message in found if message]

    def table(self) -> str:
        """The rows as a table for people; outcomes that never happened have no column."""
        rows = self.rows()
        seen = [status for status in Status if status is Status.OK or any(row.counts[status] for row in rows)]
        head = ["function", "mean", "std", *(status.label for status in seen), "p50", "p90", "p99", "samples/s"]
        body = [
            [
                row.name,
                _number(row.mean),
                _number(row.std),
                *(str(row.counts[status]) for status in seen),
                *(seconds_text(value) for value in (row.p50, row.p90, row.p99)),
                rate_text(row.rate),
            ]
            for row in rows
        ]
        return aligned([head, *body])

    def usage(self) -> str:
        """Returns the usage of judges and reward services, a line each; empty if there are none."""
        return "\n".join(f"{name}: {usage_text(used)}" for name, used in self.used.items() if used["requests"])

    def failures(self) -> str:
        """The commonest reasons for failures of each function; empty if nothing failed."""
        lines = []
        for row in self.rows():
            if not row.failed:
                continue
            lines.append(f"{row.name}: {row.failed} of {row.called} failed")
            reasons = self.reasons(row.name)
            lines += [
                f"  {reason.count} {reason.status.label}, first sample {reason.first}: {_short(reason.reason)}"
                for reason in reasons[:_SHOWN_REASONS]
            ]
            others = row.failed - sum(reason.count for reason in reasons[:_SHOWN_REASONS])
            if others:
                lines.append(f"  {others} for other reasons")
        return "\n".join(lines)

    def _row(self, index: int) -> FunctionSummary:
        values = np.concatenate(self._values[index]).astype(np.float64) if self._values[index] else np.empty(0)
        run_s = np.concatenate(self._run_s[index]) if self._run_s[index] else np.empty(0, dtype=np.float32)
        p50, p90, p99 = np.percentile(run_s, (50, 90, 99)).tolist() if run_s.size else (np.nan,) * 3
        span = self._span_s[index]
        return FunctionSummary(
            name=self.functions[index],
            mean=float(values.mean()) if values.size else np.nan,
            std=float(values.std(ddof=1)) if values.size > 1 else np.nan,
            counts=tuple(self._counts[index].tolist()),
            p50=p50,
            p90=p90,
            p99=p99,
            rate=float(self._ran[index] / span) if span > 0 else np.nan,
        )

    def _add_failures(self, failures: Sequence[Failure]) -> None:
        commonest: Counter[tuple[str, Status, str]] = Counter()
        first: dict[tuple[str, Status, str], int] = {}
        for failure in failures:
            key = (failure.function, failure.status, failure.reason)
            commonest[key] += 1
            first.setdefault(key, failure.sample + self.samples)
        for (function, status, reason), count in commonest.most_common():
            known = self._reasons[function]
            if (status, reason) in known:
                known[status, reason][0] += count
            elif len(known) < _MOST_REASONS:
                known[status, reason] = [count, first[function, status, reason]]


def aligned(cells: Sequence[Sequence[str]]) -> str:
    """A table: the first column to the left, the others to the right."""
    widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
    lines = []
    for row in cells:
        padded = [cell.rjust(width) for cell, width in zip(row, widths, strict=True)]
        padded[0] = row[0].ljust(widths[0])
        lines.append("  ".join(padded).rstrip())
    return "\n".join(lines)


def _number(value: float) -> str:
    return "-" if np.isnan(value) else f"{value:.4g}"


def seconds_text(value: float | None) -> str:
    """A time, in the unit that fits it; "-" for NaN and None."""
    if value is None or np.isnan(value):
        return "-"
    if value >= 1 or not value:
        return f"{value:.3g} s"
    return f"{value * 1e3:.3g} ms" if value >= 1e-3 else f"{value * 1e6:.3g} µs"


def rate_text(value: float) -> str:
    """Samples a second; "-" for NaN."""
    if np.isnan(value):
        return "-"
    return f"{value:,.0f}" if value >= 10 else f"{value:.2g}"


def _short(reason: str) -> str:
    line = " ".join(reason.split())
    return line if len(line) <= _REASON_WIDTH else line[: _REASON_WIDTH - 1] + "…"

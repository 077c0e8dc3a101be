"""Few bars of many slices.

A slice shorter than the resolution is drawn together with those of its row that begin in the same
interval of it; a longer one has a bar of its own. So a row has at most two bars an interval.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Final

import numpy as np

from guerdon._timeline_page.protobuf import Ints
from guerdon._timeline_page.recorded import INTEGERS, REALS, TEXTS, Slices

__all__ = ["FAILED", "STATUSES", "Bars", "merge", "resolution"]

# The worst last: it is the one that bars of several show.
STATUSES: Final = ("", "ok", "abstained", "skipped", "running", "cancelled", "timeout", "error", "crashed")
FAILED: Final = ("timeout", "error", "crashed", "cancelled")
_COARSEST: Final = 8


@dataclass
class Bars:
    """What is drawn: a slice, or several in one."""

    track: Any
    depth: Ints
    begin: Ints
    end: Ints  # -1: it had not ended
    name: Ints  # -1: of several
    status: Ints
    count: Ints
    failed: Ints
    busy_ns: Ints
    longest_ns: Ints
    # Of bars of one slice.
    facts: dict[str, Any] = field(default_factory=dict)

    def __len__(self) -> int:
        return len(self.begin)


def _starts(slices: Slices, resolution_ns: int) -> Any:
    """Where a bar begins, for each slice."""
    if not resolution_ns or len(slices) < 2:
        return np.ones(len(slices), bool)
    short = (slices.end >= 0) & (slices.end - slices.begin < resolution_ns)
    interval = slices.begin // resolution_ns
    joined = short[1:] & short[:-1]
    for each in (slices.track, slices.depth, interval):
        joined &= each[1:] == each[:-1]
    return np.r_[True, ~joined]


def resolution(slices: Slices, span_ns: int, most: int) -> int:
    """Nanoseconds: the finest resolution with at most so many bars, 0 if all can have their own.

    Where even the coarsest has more, that one.
    """
    if len(slices) <= most:
        return 0
    finest = max(1, span_ns >> 24)
    while np.count_nonzero(_starts(slices, finest)) > most and finest * _COARSEST < span_ns:
        finest += max(1, finest // 4)
    return finest


def merge(slices: Slices, status: Ints, resolution_ns: int) -> Bars:
    """The bars of slices with these statuses (places in `STATUSES`)."""
    starts = np.flatnonzero(_starts(slices, resolution_ns))
    length = np.where(slices.end < 0, 0, slices.end - slices.begin)
    failed = np.isin(status, [STATUSES.index(each) for each in FAILED]).astype(np.int64)

    def over(values: Ints, of: Any) -> Ints:
        return np.asarray(of.reduceat(values, starts), np.int64) if len(starts) else starts

    count = np.diff(np.r_[starts, len(slices)])
    least, most = over(slices.name, np.minimum), over(slices.name, np.maximum)
    facts = {name: slices.facts[name][starts] for name in (*INTEGERS, *REALS, *TEXTS)}
    for name in ("batch", "step"):
        same = over(slices.facts[name], np.minimum) == over(slices.facts[name], np.maximum)
        facts[name] = np.where(same, facts[name], -1)
    for name, values in facts.items():
        if name not in ("batch", "step"):
            values[count > 1] = np.nan if name in REALS else -1
    return Bars(
        track=slices.track[starts],
        depth=slices.depth[starts],
        begin=slices.begin[starts],
        # Only a slice with a bar of its own can be open.
        end=over(slices.end, np.maximum),
        name=np.where(least == most, least, -1),
        status=over(status, np.maximum),
        count=count,
        failed=over(failed, np.add),
        busy_ns=over(length, np.add),
        longest_ns=over(length, np.maximum),
        facts=facts,
    )

"""What a function's counters say: how many calls waited and ran, and when it was at its limit."""

from __future__ import annotations

from typing import Any, Final

import numpy as np

from guerdon._timeline_page.protobuf import Ints

__all__ = ["at_limit", "thinned"]

_MOST_POINTS: Final = 3000
_MOST_INTERVALS: Final = 1000

Counter = tuple[Ints, Ints]


def thinned(counter: Counter, span_ns: int, most: int = _MOST_POINTS) -> Counter:
    """So many values at most: of each interval the greatest one and the last."""
    at, value = counter
    if len(at) <= most:
        return counter
    interval = at // max(1, 2 * span_ns // most)
    ends = np.flatnonzero(np.r_[interval[1:] != interval[:-1], True])
    order = np.lexsort((value, interval))
    greatest = order[np.flatnonzero(np.r_[np.diff(interval[order]) != 0, True])]
    kept = np.union1d(ends, greatest)
    return at[kept], value[kept]


def at_limit(
    in_flight: Counter | None, limit: Counter | None, queued: Counter | None, span_ns: int
) -> tuple[list[tuple[int, int]], int]:
    """When calls waited because as many ran as may, and how long that was in all, in
    nanoseconds."""
    if in_flight is None or limit is None or queued is None:
        return [], 0
    times = np.unique(np.concatenate([in_flight[0], limit[0], queued[0]]))
    running, most, waiting = (_held(each, times) for each in (in_flight, limit, queued))
    full = (running >= most) & (most > 0) & (waiting > 0)
    edges = np.diff(np.r_[False, full, False].astype(np.int8))
    begin = times[np.flatnonzero(edges == 1)]
    end = np.r_[times, span_ns][np.flatnonzero(edges == -1)]
    total = int((end - begin).sum())
    apart_ns = 0
    while len(begin) > _MOST_INTERVALS:
        # What lies close together is one.
        apart_ns = max(2 * apart_ns, span_ns >> 16, 1)
        gaps = begin[1:] - end[:-1] > apart_ns
        begin, end = begin[np.r_[True, gaps]], end[np.r_[gaps, True]]
    return [(int(one), int(other)) for one, other in zip(begin, end, strict=True)], total


def _held(counter: Counter, times: Ints) -> Any:
    """The counter's value at each of these times: 0 before its first."""
    at, value = counter
    place = np.searchsorted(at, times, side="right") - 1
    return np.where(place >= 0, value[np.maximum(place, 0)], 0)

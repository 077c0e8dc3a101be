"""What the page's script draws from: rows with their bars, loads of functions, and moments.

- Small whatever the trace: bars are merged until all fits (`fitted`), and the page says so.
- Texts are those of `safe_text.visible`; the page sets them as text, never as markup.
"""

from __future__ import annotations

import math
import re
from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Final

import numpy as np

from guerdon._insight.html_frame.safe_text import as_json, shortened, visible
from guerdon._timeline_page.loads import at_limit, thinned
from guerdon._timeline_page.merging import STATUSES, Bars, merge, resolution
from guerdon._timeline_page.moment_names import shown
from guerdon._timeline_page.recorded import ParsedTrace

__all__ = ["PageData", "fitted"]

_MOST_BYTES: Final = 2_600_000
# Bars and characters of a reason; the next where the page gets too large.
_SIZES: Final = ((36_000, 256), (36_000, 60), (18_000, 60), (8_000, 40), (2_000, 20))
_MOST_ROWS: Final = 2_000
_MOST_MOMENTS: Final = 2_000
_SHARED: Final = ("batches", "workers", "threads", "event loops", "endpoints")
_LANES: Final = ("thread", "process", "code", "asyncio", "http", "native")
_HARMLESS: Final = ("worker ready", "worker restarted", "gave calls back", "circuit breaker closed")
_FUNCTION: Final = re.compile(r"(.*) \((\w+)\)", re.DOTALL)


@dataclass
class _RowGroup:
    """Rows below one heading."""

    process: int
    kind: str
    title: str
    lane: str = ""
    rows: list[int] = field(default_factory=list)
    counters: dict[str, int] = field(default_factory=dict)


@dataclass
class PageData:
    """The data as JSON, and what the page says in words."""

    json: str
    # Seconds below which slices share bars; 0 if none do.
    resolution_s: float
    slices: int
    bars: int
    # Rows and moments for which there was no room.
    left_out_rows: int
    left_out_moments: int
    # Of each function, seconds in which calls waited for its limit.
    at_limit_s: dict[str, float]
    lanes: dict[str, str]


def fitted(recorded: ParsedTrace) -> PageData:
    """As much of the trace as a page can have."""
    groups, left_out = _groups(recorded)
    for most, longest in _SIZES:
        found = _page(recorded, groups, most, longest)
        found.left_out_rows = left_out
        if len(found.json.encode()) <= _MOST_BYTES:
            break
    return found


def _groups(recorded: ParsedTrace) -> tuple[list[_RowGroup], int]:
    """The headings in the order in which they are shown, and how many rows find no place."""
    busy, counts = np.unique(recorded.slices.track, return_counts=True)
    # Where something was killed or opened a breaker, and then where most ran.
    marked = {track for track, _, name, _ in recorded.instants if name not in _HARMLESS}
    order = np.lexsort((-counts, np.asarray([int(each) not in marked for each in busy], bool)))
    kept = {int(busy[place]) for place in order[:_MOST_ROWS]}
    found: dict[tuple[int, str], _RowGroup] = {}
    for track in [*kept, *recorded.counters, *(track for track, *_ in recorded.instants)]:
        if track not in recorded.tracks:
            continue
        path = recorded.path(track)
        name = recorded.tracks[path[1]].name if len(path) > 1 else ""
        if name == "dropped trace events":
            continue
        group = found.get((path[0], name))
        if group is None:
            function = None if name in _SHARED else _FUNCTION.fullmatch(name)
            kind, title, lane = ("function", function[1], function[2]) if function else (name, name, "")
            group = found[path[0], name] = _RowGroup(path[0], kind, title or "process", lane)
        if recorded.tracks[track].is_counter:
            group.counters[recorded.tracks[track].name] = track
        elif track in kept and track not in group.rows:
            group.rows.append(track)
    names = {number: track.name for number, track in recorded.tracks.items()}
    for group in found.values():
        group.rows.sort(key=lambda row: [_natural(names[each]) for each in recorded.path(row)])
    ordered = sorted(found.values(), key=lambda group: (_natural(names[group.process]), group.process, _place(group)))
    return ordered, len(busy) - len(kept)


def _natural(name: str) -> list[tuple[int, int, str]]:
    """A name so that 'worker 10' comes after 'worker 9'."""
    return [(1, int(part), "") if part.isdecimal() else (0, 0, part) for part in re.split(r"(\d{1,18})", name)]


def _place(group: _RowGroup) -> tuple[int, int, Any]:
    kinds = ("batches", "function", "workers", "threads", "event loops", "endpoints")
    kind = kinds.index(group.kind) if group.kind in kinds else len(kinds)
    lane = _LANES.index(group.lane) if group.lane in _LANES else len(_LANES)
    return kind, lane, _natural(group.title)


class _Dictionary:
    """Texts of the page, each once."""

    def __init__(self) -> None:
        self.all: list[str] = []
        self._places: dict[str, int] = {}

    def place(self, text: str, longest: int = 256) -> int:
        text = shortened(visible(text), longest)
        found = self._places.get(text)
        if found is None:
            found = self._places[text] = len(self.all)
            self.all.append(text)
        return found


def _page(recorded: ParsedTrace, groups: list[_RowGroup], most: int, longest: int) -> PageData:
    slices, span_ns = recorded.slices, recorded.span_ns
    resolution_ns = resolution(slices, span_ns, most)
    known = {label: place for place, label in enumerate(STATUSES)}
    of_text = np.asarray([known.get(text, 0) for text in recorded.texts] or [0], np.int64)
    status = np.where(slices.facts["status"] >= 0, of_text[slices.facts["status"]], 0)
    bars = merge(slices, status, resolution_ns)
    unit = 10 ** int(math.log10(max(1, resolution_ns // 50)))
    texts = _Dictionary()
    rows = {int(track): places for track, places in _by_track(bars).items()}
    wanted = {row for group in groups for row in group.rows}
    counts = sum(int(bars.count[rows[row]].sum()) for row in wanted)
    drawn = sum(len(rows[row]) for row in wanted)
    limits: dict[str, float] = defaultdict(float)
    processes = _processes(recorded, groups)
    made = []
    for group in groups:
        one = _group(recorded, group, bars, rows, texts, unit, longest)
        counters = {what: recorded.counters[track] for what, track in group.counters.items()}
        full, full_ns = at_limit(counters.get("in flight"), counters.get("limit"), counters.get("queued"), span_ns)
        one["process"] = list(processes).index(group.process)
        one["full"] = [[begin // unit, -(-end // unit)] for begin, end in full]
        if group.kind == "function":
            limits[group.title] += full_ns / 1e9
        made.append(one)
    moments = _moments(recorded, groups, texts, unit, longest)
    data = {
        "unit": unit,
        "span": -(-span_ns // unit),
        "start": recorded.started_s,
        "resolution": resolution_ns / unit,
        "statuses": STATUSES,
        "processes": list(processes.values()),
        "groups": made,
        "moments": moments[:_MOST_MOMENTS],
        "texts": texts.all,
    }
    return PageData(
        json=as_json(data),
        resolution_s=resolution_ns / 1e9,
        slices=counts,
        bars=drawn,
        left_out_rows=0,
        left_out_moments=max(0, len(moments) - _MOST_MOMENTS),
        at_limit_s=dict(limits),
        lanes={group.title: group.lane for group in groups if group.kind == "function"},
    )


def _processes(recorded: ParsedTrace, groups: list[_RowGroup]) -> dict[int, str]:
    """Names of the processes, of which those of two files may have one."""
    found: dict[int, str] = {}
    for group in groups:
        if group.process not in found:
            name = visible(recorded.tracks[group.process].name)
            same = sum(each.rpartition(" (")[0] == name or each == name for each in found.values())
            found[group.process] = f"{name} ({same + 1})" if same else name
    return found


def _by_track(bars: Bars) -> dict[int, Any]:
    """Places of the bars of each track, which stand together."""
    if not len(bars):
        return {}
    starts = np.flatnonzero(np.r_[True, bars.track[1:] != bars.track[:-1]])
    ends = np.r_[starts[1:], len(bars)]
    return {
        int(bars.track[one]): np.arange(one, other) for one, other in zip(starts.tolist(), ends.tolist(), strict=True)
    }


def _group(
    recorded: ParsedTrace,
    group: _RowGroup,
    bars: Bars,
    places: dict[int, Any],
    texts: _Dictionary,
    unit: int,
    longest: int,
) -> dict[str, Any]:
    rows = []
    for row in group.rows:
        path = recorded.path(row)
        label = "" if group.kind == "batches" or len(path) < 3 else recorded.tracks[path[2]].name
        of_row = places[row]
        depths = np.unique(bars.depth[of_row])
        levels = [
            _columns(recorded, bars, of_row[bars.depth[of_row] == depth], texts, unit, longest) for depth in depths
        ]
        track = "/".join(recorded.tracks[each].name for each in path)
        rows.append({"label": texts.place(label), "track": texts.place(track, 1200), "levels": levels})
    counters = {}
    for name, number in group.counters.items():
        at, value = thinned(recorded.counters[number], recorded.span_ns)
        counters[name] = {"t": np.diff(at // unit, prepend=0).tolist(), "v": value.tolist()}
    return {
        "kind": group.kind,
        "title": texts.place(group.title),
        "lane": group.lane,
        "rows": rows,
        "counters": counters,
    }


def _columns(
    recorded: ParsedTrace, bars: Bars, places: Any, texts: _Dictionary, unit: int, longest: int
) -> dict[str, Any]:
    """The bars of one row and depth by column; a column of one value is that value.

    Times count from the beginning of the bar before.
    """
    facts = bars.facts
    begin = bars.begin[places] // unit
    end = np.where(bars.end[places] < 0, -1, -(-bars.end[places] // unit))
    names = [-1 if name < 0 else texts.place(recorded.texts[name]) for name in bars.name[places].tolist()]
    sample = np.where(facts["sample"][places] >= 0, facts["sample"][places], facts["first sample"][places])
    queue = facts["queue_s"][places] * 1e9 / unit
    return {
        "t": np.diff(begin, prepend=0).tolist(),
        "d": _column(np.where(end < 0, -1, end - begin)),
        "n": _column(names),
        "s": _column(bars.status[places]),
        "b": _column(facts["batch"][places]),
        "k": _column(sample),
        "q": _column(np.where(np.isnan(queue), -1, np.nan_to_num(queue).round()).astype(np.int64)),
        "x": _others(recorded, bars, places, texts, unit, longest),
    }


def _column(values: Any) -> Any:
    listed = values if isinstance(values, list) else values.tolist()
    return listed[0] if listed and all(each == listed[0] for each in listed) else listed


def _others(
    recorded: ParsedTrace, bars: Bars, places: Any, texts: _Dictionary, unit: int, longest: int
) -> dict[int, dict[str, Any]]:
    """What few bars have, by their place in the row."""
    found: dict[int, dict[str, Any]] = defaultdict(dict)

    def put(key: str, values: Any, which: Any, shown: Callable[[Any], Any] = int) -> None:
        for place in np.flatnonzero(which).tolist():
            found[place][key] = shown(values[place])

    facts = {name: values[places] for name, values in bars.facts.items()}
    several = bars.count[places] > 1
    for name in ("step", "samples", "groups", "calls", "failed", "attempt"):
        put(name, facts[name], facts[name] >= 0)
    for name in ("reason", "call"):
        put(name, facts[name], facts[name] >= 0, lambda place: texts.place(recorded.texts[place], longest))
    put("tail", facts["tail_s"], facts["tail_s"] >= 0, lambda seconds: round(seconds * 1e9 / unit))
    put("count", bars.count[places], several)
    put("bad", bars.failed[places], several & (bars.failed[places] > 0))
    for name, values in (("busy", bars.busy_ns), ("longest", bars.longest_ns)):
        put(name, values[places], several, lambda ns: round(int(ns) / unit))
    return dict(found)


def _moments(
    recorded: ParsedTrace, groups: list[_RowGroup], texts: _Dictionary, unit: int, longest: int
) -> list[list[int]]:
    """Group, row in it (-1: the group itself), time, name and reason; what went wrong first."""
    where: dict[int, tuple[int, int]] = {}
    headings: dict[tuple[int, str], int] = {}
    for number, group in enumerate(groups):
        headings[group.process, group.title if not group.lane else f"{group.title} ({group.lane})"] = number
        for place, row in enumerate(group.rows):
            where[row] = (number, place)
    found = []
    for track, at, name, reason in sorted(recorded.instants, key=lambda one: (one[2] in _HARMLESS, one[1])):
        path = recorded.path(track) if track in recorded.tracks else []
        if len(path) > 1:
            heading = headings.get((path[0], recorded.tracks[path[1]].name), 0)
        else:
            heading = headings.get((path[0], "process"), 0) if path else 0
        group_number, place = where.get(track, (heading, -1))
        found.append(
            [group_number, place, at // unit, texts.place(shown(name)), texts.place(reason, longest) if reason else -1]
        )
    return found

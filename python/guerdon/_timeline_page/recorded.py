"""What a file holds that the engine wrote of selected timelines, as columns.

- Slices have a place for each known fact of theirs; -1 or NaN where there is none.
- Times are nanoseconds after the first of the file.
- Slices of one track and depth don't overlap; they stand in the order of their beginnings.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Final

import numpy as np

from guerdon._timeline_page import protobuf
from guerdon._timeline_page.protobuf import Bytes, Ints

__all__ = ["INTEGERS", "REALS", "TEXTS", "ParsedTrace", "Slices", "Track", "read"]

INTEGERS: Final = ("batch", "step", "sample", "first sample", "samples", "groups", "calls", "failed", "attempt")
REALS: Final = ("queue_s", "tail_s")
TEXTS: Final = ("status", "reason", "call")

# Numbers of fields in TracePacket, TrackDescriptor, TrackEvent, DebugAnnotation and InternedData.
_TIME, _CLOCKS, _SEQUENCE, _EVENT, _INTERNED, _TRACK = 8, 6, 10, 11, 12, 60
_UUID, _NAME, _PROCESS, _PARENT, _COUNTER, _RANK = 1, 2, 3, 5, 8, 12
_ANNOTATION, _KIND, _EVENT_NAME, _EVENT_TRACK, _VALUE = 4, 9, 10, 11, 30
_KEY, _INTEGER, _REAL, _TEXT = 1, 3, 5, 17
_NAMES, _KEYS, _STRINGS = 2, 3, 29
_BEGIN, _END, _INSTANT, _COUNTED = 1, 2, 3, 4
_REALTIME, _BOOTTIME = 1, 6


@dataclass
class Track:
    """A track and where it stands."""

    name: str
    parent: int | None
    rank: int
    is_process: bool
    is_counter: bool


@dataclass
class Slices:
    """One place for each slice."""

    track: Any
    depth: Ints
    begin: Ints
    end: Ints  # -1: it had not ended
    name: Ints
    facts: dict[str, Any] = field(default_factory=dict)

    def __len__(self) -> int:
        return len(self.begin)


@dataclass
class ParsedTrace:
    """See the module."""

    tracks: dict[int, Track]
    slices: Slices
    # Track, time, name and reason.
    instants: list[tuple[int, int, str, str]]
    # Times and values by track.
    counters: dict[int, tuple[Ints, Ints]]
    texts: list[str]
    span_ns: int
    # Of the first time, on the clock on the wall; None if the file does not say.
    started_s: float | None

    def path(self, track: int) -> list[int]:
        """The track and those above it, the process first."""
        path = [track]
        while (parent := self.tracks[path[-1]].parent) in self.tracks and parent not in path:
            path.append(parent)
        return path[::-1]


class _Known:
    """The texts that packets know by numbers: each sequence has its own."""

    def __init__(self, sequences: int) -> None:
        self._first = np.zeros(sequences + 1, np.int64)
        self._texts = np.zeros(0, np.int64)

    def add(self, sequence: Ints, texts: Ints) -> None:
        """All texts of one kind, in the order in which the file tells them."""
        order = np.argsort(sequence, kind="stable")
        self._texts = texts[order]
        self._first = np.searchsorted(sequence[order], np.arange(len(self._first)))

    def of(self, sequence: Ints, numbers: Any) -> Ints:
        """The texts with these numbers, which count from 1 in each sequence."""
        if not len(self._texts):
            return np.full(len(sequence), -1, np.int64)
        places = self._first[sequence] + numbers.astype(np.int64) - 1
        return np.asarray(self._texts[places], np.int64)


class _Texts:
    """All texts of a file, each once."""

    def __init__(self) -> None:
        self.all: list[str] = []
        self._places: dict[str, int] = {}

    def place(self, text: str) -> int:
        found = self._places.get(text)
        if found is None:
            found = self._places[text] = len(self.all)
            self.all.append(text)
        return found


def read(raw: bytes) -> ParsedTrace:
    """Read the file that `select_trace` wrote.

    Raises:
        ValueError: It is another file.
    """
    try:
        return _read(raw)
    except IndexError:
        raise ValueError("it is no trace of the engine") from None


def _read(raw: bytes) -> ParsedTrace:
    begin, end = protobuf.top_level(raw)
    data = np.frombuffer(raw + b"\x00" * 16, np.uint8)
    count = len(begin)
    time, sequence = np.zeros(count, np.int64), np.zeros(count, np.int64)
    parts = {each: np.zeros((count, 2), np.int64) for each in (_EVENT, _INTERNED, _TRACK, _CLOCKS)}
    for which, number, value, stop in protobuf.fields(data, begin, end):
        for one, into in ((_TIME, time), (_SEQUENCE, sequence)):
            chosen = number == one
            into[which[chosen]] = value[chosen].astype(np.int64)
        for one, places in parts.items():
            chosen = number == one
            places[which[chosen], 0] = value[chosen].astype(np.int64)
            places[which[chosen], 1] = stop[chosen]
    known = _interned(raw, data, sequence, parts[_INTERNED])
    texts = known[0]
    tracks = _tracks(raw, data, parts[_TRACK])
    events = np.flatnonzero(parts[_EVENT][:, 1])
    start = int(time[events].min()) if len(events) else 0
    at = time[events] - start
    found = _events(data, sequence[events], parts[_EVENT][events], known)
    kind, track, name, counted = found["kind"], found["track"], found["name"], found["counted"]
    instants = [
        (int(track[one]), int(at[one]), texts.all[name[one]], _text(texts, found["reason"][one]))
        for one in np.flatnonzero(kind == _INSTANT)
        if texts.all[name[one]] != "ready"
    ]
    counters = {
        int(one): (at[places], counted[places])
        for one in np.unique(track[kind == _COUNTED])
        for places in [np.flatnonzero((kind == _COUNTED) & (track == one))]
    }
    return ParsedTrace(
        tracks=tracks,
        slices=_slices(at, found),
        instants=instants,
        counters=counters,
        texts=texts.all,
        span_ns=int(at.max()) if len(at) else 0,
        started_s=_started(data, parts[_CLOCKS], start),
    )


def _text(texts: _Texts, place: Any) -> str:
    return texts.all[place] if place >= 0 else ""


def _interned(raw: bytes, data: Bytes, sequence: Ints, parts: Ints) -> tuple[_Texts, _Known, _Known, _Known]:
    """Texts by sequence and number: names of events, of annotations, and their values."""
    texts, entries = _Texts(), {_NAMES: ([], []), _KEYS: ([], []), _STRINGS: ([], [])}  # type: ignore[var-annotated]
    packets = np.flatnonzero(parts[:, 1])
    found: dict[int, list[tuple[Ints, Ints, Ints]]] = {each: [] for each in entries}
    for which, number, value, stop in protobuf.fields(data, parts[packets, 0], parts[packets, 1]):
        for each in entries:
            chosen = number == each
            found[each].append((packets[which[chosen]], value[chosen].astype(np.int64), stop[chosen]))
    sequences = int(sequence.max()) + 1 if len(sequence) else 1
    tables = []
    for each in entries:
        packet, first, last = (np.concatenate([part[place] for part in found[each]] or [_none()]) for place in range(3))
        order = np.lexsort((first, packet))
        packet, first, last = packet[order], first[order], last[order]
        begin, end = np.zeros(len(packet), np.int64), np.zeros(len(packet), np.int64)
        for which, number, value, stop in protobuf.fields(data, first, last):
            chosen = number == 2
            begin[which[chosen]], end[which[chosen]] = value[chosen].astype(np.int64), stop[chosen]
        table = _Known(sequences)
        places = [texts.place(text) for text in protobuf.texts(raw, begin, end)]
        table.add(sequence[packet], np.asarray(places, np.int64))
        tables.append(table)
    return texts, tables[0], tables[1], tables[2]


def _none() -> Ints:
    return np.zeros(0, np.int64)


def _tracks(raw: bytes, data: Bytes, parts: Ints) -> dict[int, Track]:
    packets = np.flatnonzero(parts[:, 1])
    made = [Track("", None, 0, False, False) for _ in packets]
    numbers = [0] * len(packets)
    for which, number, value, stop in protobuf.fields(data, parts[packets, 0], parts[packets, 1]):
        for one, what, this, until in zip(which.tolist(), number.tolist(), value.tolist(), stop.tolist(), strict=True):
            track = made[one]
            if what == _UUID:
                numbers[one] = this
            elif what == _NAME:
                track.name = raw[this:until].decode("utf-8", "replace")
            elif what == _PARENT:
                track.parent = this
            elif what == _RANK:
                track.rank = this
            elif what == _PROCESS:
                track.is_process = True
            elif what == _COUNTER:
                track.is_counter = True
    return dict(zip(numbers, made, strict=True))


def _events(data: Bytes, sequence: Ints, parts: Ints, known: tuple[_Texts, _Known, _Known, _Known]) -> dict[str, Any]:
    """Kind, track, name, value and facts of each event."""
    texts, names, keys, strings = known
    count = len(parts)
    found: dict[str, Any] = {"kind": np.zeros(count, np.int64), "counted": np.zeros(count, np.int64)}
    found["track"], found["name"] = np.zeros(count, np.uint64), np.full(count, -1, np.int64)
    annotations: list[tuple[Ints, Ints, Ints]] = []
    for which, number, value, stop in protobuf.fields(data, parts[:, 0], parts[:, 1]):
        for one, into in ((_KIND, "kind"), (_EVENT_TRACK, "track"), (_VALUE, "counted")):
            chosen = number == one
            found[into][which[chosen]] = value[chosen].astype(found[into].dtype)
        chosen = number == _EVENT_NAME
        found["name"][which[chosen]] = names.of(sequence[which[chosen]], value[chosen])
        chosen = number == _ANNOTATION
        annotations.append((which[chosen], value[chosen].astype(np.int64), stop[chosen]))
    event, first, last = (np.concatenate([part[place] for part in annotations] or [_none()]) for place in range(3))
    key, kind, values = np.full(len(event), -1, np.int64), np.zeros(len(event), np.int64), np.zeros(len(event), "u8")
    for which, number, value, _ in protobuf.fields(data, first, last):
        chosen = number == _KEY
        key[which[chosen]] = keys.of(sequence[event[which[chosen]]], value[chosen])
        chosen = np.isin(number, (_INTEGER, _REAL, _TEXT))
        kind[which[chosen]], values[which[chosen]] = number[chosen], value[chosen]
    places = {text: place for place, text in enumerate(texts.all)}
    for name in (*INTEGERS, *REALS, *TEXTS):
        wanted = {_INTEGER} if name in INTEGERS else {_REAL} if name in REALS else {_TEXT}
        chosen = np.flatnonzero((key == places.get(name, -2)) & np.isin(kind, list(wanted)))
        if name in REALS:
            found[name] = np.full(count, np.nan)
            found[name][event[chosen]] = protobuf.doubles(data, values[chosen])
            continue
        found[name] = np.full(count, -1, np.int64)
        given = strings.of(sequence[event[chosen]], values[chosen]) if name in TEXTS else values[chosen]
        found[name][event[chosen]] = given.astype(np.int64)
    return found


def _slices(at: Ints, found: dict[str, Any]) -> Slices:
    """Beginnings with their ends: on one track and depth they come in turn."""
    places = np.flatnonzero((found["kind"] == _BEGIN) | (found["kind"] == _END))
    places = places[np.argsort(found["track"][places], kind="stable")]
    opens = found["kind"][places] == _BEGIN
    track = found["track"][places]
    level = np.cumsum(np.where(opens, 1, -1))
    starts = np.flatnonzero(np.r_[True, track[1:] != track[:-1]]) if len(track) else _none()
    before = np.r_[0, level[starts[1:] - 1]] if len(starts) else _none()
    level -= np.repeat(before, np.diff(np.r_[starts, len(track)]))
    depth = np.where(opens, level - 1, level)
    order = np.lexsort((np.arange(len(places)), depth, track))
    places, opens, depth, track = places[order], opens[order], depth[order], track[order]
    begins = np.flatnonzero(opens)
    after = np.minimum(begins + 1, max(0, len(places) - 1))
    ended = (after > begins) & ~opens[after] & (track[after] == track[begins]) & (depth[after] == depth[begins])
    which = places[begins]
    return Slices(
        track=track[begins],
        depth=depth[begins],
        begin=at[which],
        end=np.where(ended, at[places[after]], -1),
        name=found["name"][which],
        facts={name: found[name][which] for name in (*INTEGERS, *REALS, *TEXTS)},
    )


def _started(data: Bytes, parts: Ints, start: int) -> float | None:
    """The first time of the file, as the system's clock has it."""
    packets = np.flatnonzero(parts[:, 1])[:1]
    clocks = {}
    for _, number, value, stop in protobuf.fields(data, parts[packets, 0], parts[packets, 1]):
        if number[0] != 1:
            continue
        one = {int(key[0]): int(what[0]) for _, key, what, _ in protobuf.fields(data, value.astype(np.int64), stop)}
        clocks[one.get(1)] = one.get(2, 0)
    if _REALTIME not in clocks or _BOOTTIME not in clocks:
        return None
    return (clocks[_REALTIME] - clocks[_BOOTTIME] + start) / 1e9

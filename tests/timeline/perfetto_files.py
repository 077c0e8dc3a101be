"""Timelines as Perfetto's own protos read them, and what holds in each."""

from __future__ import annotations

import itertools
from collections import defaultdict
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from perfetto.protos.perfetto.trace import perfetto_trace_pb2 as proto


@dataclass
class Slice:
    track: str
    name: str
    begin: int
    end: int | None
    depth: int
    values: dict[str, Any]
    flows: list[int]


@dataclass
class PerfettoFile:
    """A file that was read; `parse` checks it."""

    tracks: dict[int, Any] = field(default_factory=dict)
    slices: list[Slice] = field(default_factory=list)
    instants: list[tuple[str, str, int, dict[str, Any], list[int]]] = field(default_factory=list)
    counters: dict[str, list[tuple[int, int]]] = field(default_factory=lambda: defaultdict(list))

    def path(self, uuid: int) -> str:
        track = self.tracks[uuid]
        parent = self.path(track.parent_uuid) + "/" if track.HasField("parent_uuid") else ""
        return f"{parent}{track.name}"

    def named(self, name: str, **values: object) -> list[Slice]:
        return [one for one in self.slices if one.name == name and values.items() <= one.values.items()]

    def moments(self, name: str) -> list[tuple[str, str, int, dict[str, Any], list[int]]]:
        return [one for one in self.instants if one[1] == name]


def parse(path: Path) -> PerfettoFile:
    """Reads a file and checks what holds in each: times never go back in a sequence, tracks are
    known before they are used, slices nest."""
    trace = proto.Trace()
    assert trace.ParseFromString(path.read_bytes()) == path.stat().st_size
    found = PerfettoFile()
    last: dict[int, int] = defaultdict(int)
    events: list[tuple[int, bool, Any]] = []
    for packet in trace.packet:
        sequence = packet.trusted_packet_sequence_id
        if packet.HasField("clock_snapshot"):
            assert {clock.clock_id for clock in packet.clock_snapshot.clocks} == {1, 3, 6}
        if packet.HasField("track_descriptor"):
            found.tracks[packet.track_descriptor.uuid] = packet.track_descriptor
        if packet.HasField("track_event"):
            assert packet.timestamp >= last[sequence], "time goes back in a sequence"
            last[sequence] = packet.timestamp
            event = packet.track_event
            assert event.track_uuid in found.tracks
            events.append((packet.timestamp, event.type != event.TYPE_SLICE_END, event))
    events.sort(key=lambda one: one[:2])
    open_slices: dict[int, list[Slice]] = defaultdict(list)
    for at, _, event in events:
        track = found.path(event.track_uuid)
        if event.type == event.TYPE_COUNTER:
            found.counters[track].append((at, event.counter_value))
        elif event.type == event.TYPE_SLICE_END:
            assert open_slices[event.track_uuid], "an end without a beginning"
            open_slices[event.track_uuid].pop().end = at
        else:
            name, values = event.name, _values(event)
            flows = list(event.flow_ids)
            if event.type == event.TYPE_INSTANT:
                found.instants.append((track, name, at, values, flows))
            else:
                stack = open_slices[event.track_uuid]
                one = Slice(track, name, at, None, len(stack), values, flows)
                stack.append(one)
                found.slices.append(one)
    for one in found.slices:
        assert one.end is None or one.end > one.begin
    return found


def _values(event: Any) -> dict[str, Any]:
    return {one.name: getattr(one, one.WhichOneof("value")) for one in event.debug_annotations}


def assert_whole(file: PerfettoFile) -> None:
    """Every slice has its end, and none of one depth and track overlaps another."""
    assert all(one.end is not None for one in file.slices)
    by_track: dict[tuple[str, int], list[Slice]] = defaultdict(list)
    for one in file.slices:
        by_track[one.track, one.depth].append(one)
    for slices in by_track.values():
        slices.sort(key=lambda one: one.begin)
        for before, after in itertools.pairwise(slices):
            assert before.end is not None
            assert before.end <= after.begin

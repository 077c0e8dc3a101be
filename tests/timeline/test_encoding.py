"""The engine's reader and writer of traces against Perfetto's own protos, on traces of any
content."""

from __future__ import annotations

import contextlib
import tempfile
from pathlib import Path
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st
from perfetto.protos.perfetto.trace import perfetto_trace_pb2 as proto

from guerdon import _native
from tests.timeline.perfetto_files import PerfettoFile, parse

names = st.text(st.characters(exclude_categories=["Cs"]), max_size=40)
numbers = st.integers(0, 2**64 - 1)
values = st.dictionaries(names, st.one_of(numbers, names, st.floats(allow_nan=False)), max_size=3)
details = st.tuples(names, values, st.lists(st.integers(1, 2**64 - 1), max_size=3))
# Gaps and lengths of slices one after the other on a track, each with what goes with it.
slices = st.lists(st.tuples(st.integers(0, 50), st.integers(1, 10**12), details), max_size=6)
tracks = st.lists(st.tuples(names, slices, st.lists(details, max_size=2)), min_size=1, max_size=4)
counters = st.lists(
    st.tuples(st.integers(0, 10**12), st.integers(0, 2**63 - 1)), max_size=5, unique_by=lambda one: one[0]
)


class OfficialTrace:
    """A trace as Perfetto's protos write it."""

    def __init__(self) -> None:
        self.trace = proto.Trace()
        self.texts: dict[tuple[str, str], int] = {}
        first = self.packet()
        first.sequence_flags = 1
        for clock in (1, 3, 6):
            first.clock_snapshot.clocks.add(clock_id=clock, timestamp=10**15 + clock)
        self.describe(1, "process", None).process.pid = 7

    def packet(self) -> Any:
        packet = self.trace.packet.add()
        packet.trusted_packet_sequence_id = 1
        return packet

    def describe(self, uuid: int, name: str, parent: int | None) -> Any:
        track = self.packet().track_descriptor
        track.uuid, track.name = uuid, name
        if parent is not None:
            track.parent_uuid = parent
        return track

    def iid(self, packet: Any, kind: str, text: str) -> int:
        known = self.texts.get((kind, text))
        if known is None:
            known = self.texts[kind, text] = len(self.texts) + 1
            new = getattr(packet.interned_data, kind).add(iid=known)
            if kind == "debug_annotation_string_values":
                new.str = text.encode()
            else:
                new.name = text
        return known

    def event(self, at: int, kind: int, track: int, details: Any = None, counter: int | None = None) -> None:
        packet = self.packet()
        packet.timestamp, packet.sequence_flags = at, 2
        event = packet.track_event
        event.type, event.track_uuid = kind, track
        if counter is not None:
            event.counter_value = counter
        if details is not None:
            name, values, flows = details
            event.name_iid = self.iid(packet, "event_names", name)
            event.flow_ids.extend(flows)
            for key, value in values.items():
                one = event.debug_annotations.add(name_iid=self.iid(packet, "debug_annotation_names", key))
                if isinstance(value, str):
                    one.string_value_iid = self.iid(packet, "debug_annotation_string_values", value)
                elif isinstance(value, int):
                    one.uint_value = value
                else:
                    one.double_value = value


def facts(file: PerfettoFile) -> list[object]:
    slices = [(one.track, one.name, one.begin, one.end, one.values, one.flows) for one in file.slices]
    counters = sorted((track, sorted(values)) for track, values in file.counters.items())
    return [sorted(map(repr, slices)), sorted(map(repr, file.instants)), counters]


@settings(max_examples=max(1, settings().max_examples // 4), deadline=None)
@given(tracks, counters)
def test_what_is_read_and_written_is_what_was_there(tracks: Any, counters: Any) -> None:
    official = OfficialTrace()
    start = 10**15
    for number, (name, slices, instants) in enumerate(tracks):
        track = official.describe(number + 10, f"{number} {name}", 1).uuid
        now = start
        for gap, length, details in slices:
            official.event(now + gap, 1, track, details)
            now += gap + length
            official.event(now, 2, track)
        for details in instants:
            official.event(start, 3, track, details)
    official.describe(5, "counter", 1).counter.SetInParent()
    for at, value in counters:
        official.event(start + at, 4, 5, counter=value)
    # Of several tracks one after the other times go back: that is no matter to a reader.
    with tempfile.TemporaryDirectory() as folder:
        before, after = Path(folder, "before"), Path(folder, "after")
        official.trace.packet.sort(key=lambda packet: packet.timestamp)
        _in_order(official.trace)
        before.write_bytes(official.trace.SerializeToString())
        _native.select_trace([str(before)], output=str(after))
        assert facts(parse(before)) == facts(parse(after))


def _in_order(trace: Any) -> None:
    """Texts and tracks before what uses them."""
    packets = list(trace.packet)
    first = proto.TracePacket(trusted_packet_sequence_id=1, sequence_flags=2)
    for packet in packets:
        if packet.HasField("interned_data"):
            first.interned_data.MergeFrom(packet.interned_data)
            packet.ClearField("interned_data")
    begin = [packet for packet in packets if packet.HasField("clock_snapshot")]
    described = [packet for packet in packets if packet.HasField("track_descriptor")]
    events = [packet for packet in packets if packet.HasField("track_event")]
    del trace.packet[:]
    trace.packet.extend([*begin, first, *described, *events])


@settings(max_examples=60, deadline=None)
@given(st.binary(max_size=300))
def test_any_bytes_are_read_or_refused(content: bytes) -> None:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "any")
        path.write_bytes(content)
        with contextlib.suppress(ValueError):
            _native.select_trace([str(path)], output=str(Path(folder, "after")))

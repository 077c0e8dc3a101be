//! The part of Perfetto's packets that a timeline uses. The numbers are those of
//! `perfetto/protos/perfetto/trace`; tests read the written file with Perfetto's own protos.
//!
//! Texts are `Bytes`, which protobuf encodes like a string: events share a name without copies, and
//! a reader accepts any bytes.

use bytes::{Buf, Bytes};
use prost::{Enumeration, Message, Oneof};

/// Tag of `Trace.packet`. A file is a sequence of packets, each after this tag and its length.
pub(crate) const PACKET_TAG: u8 = 0x0a;

/// Bytes that are kept of a name or text, as many as a screen shows.
const LONGEST_TEXT: usize = 256;

/// Returns the beginning of a text, in complete characters.
pub(crate) fn shortened(text: &str) -> Bytes {
    Bytes::copy_from_slice(&text.as_bytes()[..text.floor_char_boundary(LONGEST_TEXT)])
}

/// `TracePacket`.
#[derive(Clone, PartialEq, Message)]
pub(crate) struct Packet {
    #[prost(message, optional, tag = "6")]
    pub clocks: Option<ClockSnapshot>,
    #[prost(uint64, optional, tag = "8")]
    pub at_ns: Option<u64>,
    #[prost(uint32, tag = "10")]
    pub sequence: u32,
    #[prost(message, optional, tag = "11")]
    pub event: Option<TrackEvent>,
    #[prost(message, optional, tag = "60")]
    pub track: Option<TrackDescriptor>,
}

impl Packet {
    /// Appends the packet to a file.
    pub(crate) fn put(&self, out: &mut Vec<u8>) {
        out.push(PACKET_TAG);
        // It fails only if a buffer is full, and a Vec grows.
        let _ = self.encode_length_delimited(out);
    }
}

/// The packets of a file, up to its end or the first incomplete packet.
pub(crate) struct Packets {
    pub rest: Bytes,
}

impl Iterator for Packets {
    type Item = Bytes;

    fn next(&mut self) -> Option<Bytes> {
        let mut rest = self.rest.clone();
        if rest.try_get_u8().ok()? != PACKET_TAG {
            return None;
        }
        let length = prost::decode_length_delimiter(&mut rest).ok()?;
        let packet = (length <= rest.len()).then(|| rest.split_to(length))?;
        self.rest = rest;
        Some(packet)
    }
}

/// The time on each clock at one moment.
#[derive(Clone, PartialEq, Message)]
pub(crate) struct ClockSnapshot {
    #[prost(message, repeated, tag = "1")]
    pub clocks: Vec<Clock>,
    /// Clock of the packets' times.
    #[prost(uint32, tag = "2")]
    pub primary: u32,
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct Clock {
    #[prost(uint32, tag = "1")]
    pub id: u32,
    #[prost(uint64, tag = "2")]
    pub now_ns: u64,
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct TrackDescriptor {
    #[prost(uint64, tag = "1")]
    pub uuid: u64,
    #[prost(bytes = "bytes", tag = "2")]
    pub name: Bytes,
    #[prost(message, optional, tag = "3")]
    pub process: Option<ProcessDescriptor>,
    #[prost(uint64, optional, tag = "5")]
    pub parent: Option<u64>,
    /// Present on tracks of counters.
    #[prost(message, optional, tag = "8")]
    pub counter: Option<()>,
    #[prost(uint32, tag = "11")]
    pub child_ordering: u32,
    #[prost(uint32, tag = "12")]
    pub sibling_rank: u32,
}

/// Value of `child_ordering` for children that are ordered by `sibling_rank`.
pub(crate) const EXPLICIT: u32 = 3;

#[derive(Clone, PartialEq, Message)]
pub(crate) struct ProcessDescriptor {
    #[prost(uint32, tag = "1")]
    pub pid: u32,
    #[prost(bytes = "bytes", tag = "6")]
    pub name: Bytes,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Enumeration)]
#[repr(i32)]
pub(crate) enum EventKind {
    Unspecified = 0,
    Begin = 1,
    End = 2,
    Instant = 3,
    Counter = 4,
}

/// The beginning or the end of a slice, an instant, or the value of a counter.
#[derive(Clone, PartialEq, Message)]
pub(crate) struct TrackEvent {
    #[prost(message, repeated, tag = "4")]
    pub details: Vec<Detail>,
    #[prost(enumeration = "EventKind", tag = "9")]
    pub kind: i32,
    #[prost(uint64, tag = "11")]
    pub track: u64,
    #[prost(bytes = "bytes", tag = "23")]
    pub name: Bytes,
    #[prost(uint64, optional, tag = "30")]
    pub value: Option<u64>,
    /// Arrows join the events of a flow, in the order of their times.
    #[prost(fixed64, repeated, packed = "false", tag = "47")]
    pub flows: Vec<u64>,
}

/// A `DebugAnnotation`: a name with a value.
#[derive(Clone, PartialEq, Message)]
pub(crate) struct Detail {
    #[prost(oneof = "Value", tags = "3, 5, 6")]
    pub value: Option<Value>,
    #[prost(bytes = "bytes", tag = "10")]
    pub key: Bytes,
}

#[derive(Clone, PartialEq, Oneof)]
pub(crate) enum Value {
    #[prost(uint64, tag = "3")]
    Number(u64),
    #[prost(double, tag = "5")]
    Real(f64),
    #[prost(bytes = "bytes", tag = "6")]
    Text(Bytes),
}

impl TrackEvent {
    pub(crate) fn named(name: impl Into<Bytes>) -> Self {
        Self { name: name.into(), ..Self::default() }
    }

    pub(crate) fn detail(&self, key: &str) -> Option<&Value> {
        self.details.iter().find(|detail| detail.key == *key)?.value.as_ref()
    }

    fn with(mut self, key: &'static str, value: Value) -> Self {
        self.details.push(Detail { value: Some(value), key: key.into() });
        self
    }

    pub(crate) fn number(self, key: &'static str, value: u64) -> Self {
        self.with(key, Value::Number(value))
    }

    pub(crate) fn real(self, key: &'static str, value: f64) -> Self {
        self.with(key, Value::Real(value))
    }

    pub(crate) fn text(self, key: &'static str, value: &str) -> Self {
        self.with(key, Value::Text(shortened(value)))
    }

    pub(crate) fn flow(mut self, flow: u64) -> Self {
        self.flows.push(flow);
        self
    }
}

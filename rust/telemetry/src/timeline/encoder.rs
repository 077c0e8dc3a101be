//! Items as Perfetto's packets.
//!
//! - A segment is a separate packet sequence: its texts are interned in it, and its times never go
//!   back.
//! - A track is described before its first item in a slot, its parents before it.
//!
//! The numbers are those of `perfetto/protos/perfetto/trace`; tests read the written file with
//! Perfetto's own protos.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use crate::timeline::item::{Details, Item, ItemKind, TrackId, Value};
use crate::timeline::proto::Message;
use crate::timeline::tracks::{TrackKind, Tracks};

/// `Trace.packet`.
pub(crate) const PACKET: u32 = 1;

/// Fields of `TracePacket`.
pub(crate) mod packet {
    pub(crate) const CLOCK_SNAPSHOT: u32 = 6;
    pub(crate) const TIMESTAMP: u32 = 8;
    pub(crate) const SEQUENCE: u32 = 10;
    pub(crate) const TRACK_EVENT: u32 = 11;
    pub(crate) const INTERNED: u32 = 12;
    pub(crate) const SEQUENCE_FLAGS: u32 = 13;
    pub(crate) const TRACK_DESCRIPTOR: u32 = 60;
    /// Field that no message of Perfetto's has: readers pass over it.
    pub(crate) const PADDING: u32 = 2047;
}

/// Fields of `TrackDescriptor`, and of the messages in it.
pub(crate) mod descriptor {
    pub(crate) const UUID: u32 = 1;
    pub(crate) const NAME: u32 = 2;
    pub(crate) const PROCESS: u32 = 3;
    pub(crate) const PARENT: u32 = 5;
    pub(crate) const COUNTER: u32 = 8;
    pub(crate) const CHILD_ORDERING: u32 = 11;
    pub(crate) const SIBLING_RANK: u32 = 12;
    pub(crate) const EXPLICIT: u64 = 3;
    pub(crate) const PROCESS_PID: u32 = 1;
    pub(crate) const PROCESS_NAME: u32 = 6;
}

/// Fields of `TrackEvent`, and of the annotations in it.
pub(crate) mod event {
    pub(crate) const ANNOTATIONS: u32 = 4;
    pub(crate) const TYPE: u32 = 9;
    pub(crate) const NAME_IID: u32 = 10;
    pub(crate) const TRACK: u32 = 11;
    pub(crate) const COUNTER_VALUE: u32 = 30;
    pub(crate) const FLOWS: u32 = 47;
    pub(crate) const BEGIN: u64 = 1;
    pub(crate) const END: u64 = 2;
    pub(crate) const INSTANT: u64 = 3;
    pub(crate) const COUNTER: u64 = 4;
    pub(crate) const KEY_IID: u32 = 1;
    pub(crate) const NUMBER: u32 = 3;
    pub(crate) const REAL: u32 = 5;
    pub(crate) const TEXT_IID: u32 = 17;
}

/// Fields of `InternedData`: names of events and annotations, and texts.
pub(crate) mod interned {
    pub(crate) const NAMES: u32 = 2;
    pub(crate) const KEYS: u32 = 3;
    pub(crate) const TEXTS: u32 = 29;
}

/// Clocks, as Perfetto numbers them.
pub(crate) mod clock {
    pub(crate) const REALTIME: u64 = 1;
    pub(crate) const MONOTONIC: u64 = 3;
    pub(crate) const BOOTTIME: u64 = 6;
}

const CLEARED: u64 = 1;
const NEEDS_STATE: u64 = 2;

/// The time on each clock at one moment.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Clocks {
    pub boot_ns: u64,
    pub real_ns: u64,
    pub monotonic_ns: u64,
}

impl Clocks {
    pub(crate) fn now() -> Self {
        let read = |which| {
            let now = rustix::time::clock_gettime(which);
            u64::try_from(now.tv_sec).unwrap_or(0) * 1_000_000_000 + u64::try_from(now.tv_nsec).unwrap_or(0)
        };
        Self {
            boot_ns: read(rustix::time::ClockId::Boottime),
            real_ns: read(rustix::time::ClockId::Realtime),
            monotonic_ns: read(rustix::time::ClockId::Monotonic),
        }
    }
}

/// Texts of one kind that a sequence knows by numbers.
#[derive(Default)]
struct Interner {
    known: HashMap<Arc<str>, u64>,
}

impl Interner {
    /// A text's number, and whether it is new.
    fn of(&mut self, text: &Arc<str>) -> (u64, bool) {
        if let Some(iid) = self.known.get(text) {
            return (*iid, false);
        }
        let iid = self.known.len() as u64 + 1;
        self.known.insert(text.clone(), iid);
        (iid, true)
    }
}

/// The packets of some items.
pub(crate) struct Segment<'a> {
    tracks: &'a Tracks,
    sequence: u64,
    names: Interner,
    keys: Interner,
    texts: Interner,
    out: Vec<u8>,
    /// Used again for each packet.
    packet: Message,
    event: Message,
    interned: Message,
    part: Message,
}

impl<'a> Segment<'a> {
    /// `described` are the tracks that the slot describes already.
    pub(crate) fn encode(
        tracks: &'a Tracks,
        described: &mut HashSet<TrackId>,
        sequence: u64,
        clocks: Clocks,
        items: &mut [Item],
    ) -> Vec<u8> {
        items.sort_by_key(Item::order);
        let mut segment = Self {
            tracks,
            sequence,
            names: Interner::default(),
            keys: Interner::default(),
            texts: Interner::default(),
            out: Vec::with_capacity(64 * items.len()),
            packet: Message::default(),
            event: Message::default(),
            interned: Message::default(),
            part: Message::default(),
        };
        segment.begin(clocks);
        for item in &*items {
            segment.describe(item.track, described);
        }
        items.iter().for_each(|item| segment.item(item));
        segment.out
    }

    fn begin(&mut self, clocks: Clocks) {
        let mut snapshot = Message::default();
        let times = [
            (clock::BOOTTIME, clocks.boot_ns),
            (clock::REALTIME, clocks.real_ns),
            (clock::MONOTONIC, clocks.monotonic_ns),
        ];
        for (id, now_ns) in times {
            self.part.clear();
            self.part.varint(1, id);
            self.part.varint(2, now_ns);
            snapshot.message(1, &self.part);
        }
        snapshot.varint(2, clock::BOOTTIME);
        self.packet.clear();
        self.packet.message(packet::CLOCK_SNAPSHOT, &snapshot);
        self.packet.varint(packet::SEQUENCE, self.sequence);
        self.packet.varint(packet::SEQUENCE_FLAGS, CLEARED);
        self.put();
    }

    fn put(&mut self) {
        let mut framed = Message::default();
        framed.message(PACKET, &self.packet);
        self.out.extend_from_slice(framed.bytes());
    }

    fn describe(&mut self, id: TrackId, described: &mut HashSet<TrackId>) {
        if !described.insert(id) {
            return;
        }
        let tracks = self.tracks;
        let track = tracks.get(id);
        if let Some(parent) = track.parent {
            self.describe(parent, described);
        }
        let mut message = Message::default();
        message.varint(descriptor::UUID, track.uuid);
        message.text(descriptor::NAME, track.name.as_bytes());
        if let Some(parent) = track.parent {
            message.varint(descriptor::PARENT, tracks.get(parent).uuid);
        }
        match track.kind {
            TrackKind::Process(pid) => {
                self.part.clear();
                self.part.varint(descriptor::PROCESS_PID, u64::from(pid));
                self.part.text(descriptor::PROCESS_NAME, track.name.as_bytes());
                message.message(descriptor::PROCESS, &self.part);
            }
            TrackKind::Slices => {}
            TrackKind::Counter => message.text(descriptor::COUNTER, &[]),
        }
        message.varint(descriptor::CHILD_ORDERING, descriptor::EXPLICIT);
        message.varint(descriptor::SIBLING_RANK, u64::from(track.rank));
        self.packet.clear();
        self.packet.message(packet::TRACK_DESCRIPTOR, &message);
        self.packet.varint(packet::SEQUENCE, self.sequence);
        self.put();
    }

    fn item(&mut self, item: &Item) {
        self.event.clear();
        self.interned.clear();
        let kind = match &item.kind {
            ItemKind::Begin(_) => event::BEGIN,
            ItemKind::End => event::END,
            ItemKind::Instant(_) => event::INSTANT,
            ItemKind::Counter(_) => event::COUNTER,
        };
        self.event.varint(event::TYPE, kind);
        self.event.varint(event::TRACK, self.tracks.get(item.track).uuid);
        match &item.kind {
            ItemKind::Begin(details) | ItemKind::Instant(details) => self.details(details),
            ItemKind::Counter(value) => self.event.varint(event::COUNTER_VALUE, *value),
            ItemKind::End => {}
        }
        self.packet.clear();
        self.packet.varint(packet::TIMESTAMP, item.at_ns);
        self.packet.varint(packet::SEQUENCE, self.sequence);
        self.packet.varint(packet::SEQUENCE_FLAGS, NEEDS_STATE);
        if !self.interned.is_empty() {
            self.packet.message(packet::INTERNED, &self.interned);
        }
        self.packet.message(packet::TRACK_EVENT, &self.event);
        self.put();
    }

    fn details(&mut self, details: &Details) {
        let (name, new) = self.names.of(&details.name);
        if new {
            self.intern(interned::NAMES, name, &details.name);
        }
        self.event.varint(event::NAME_IID, name);
        for flow in &details.flows {
            self.event.fixed64(event::FLOWS, *flow);
        }
        for (key, value) in &details.values {
            let key: Arc<str> = (*key).into();
            let (iid, new) = self.keys.of(&key);
            if new {
                self.intern(interned::KEYS, iid, &key);
            }
            let mut annotation = Message::default();
            annotation.varint(event::KEY_IID, iid);
            match value {
                Value::Number(number) => annotation.varint(event::NUMBER, *number),
                Value::Real(real) => annotation.double(event::REAL, *real),
                Value::Text(text) => {
                    let (iid, new) = self.texts.of(text);
                    if new {
                        self.intern(interned::TEXTS, iid, text);
                    }
                    annotation.varint(event::TEXT_IID, iid);
                }
            }
            self.event.message(event::ANNOTATIONS, &annotation);
        }
    }

    /// Tells the sequence a text's number.
    fn intern(&mut self, kind: u32, iid: u64, text: &str) {
        self.part.clear();
        self.part.varint(1, iid);
        self.part.text(2, text.as_bytes());
        self.interned.message(kind, &self.part);
    }
}

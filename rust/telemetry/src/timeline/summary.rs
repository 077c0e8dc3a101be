//! Counts what a timeline holds, also while it is written.
//!
//! Damage, as where a slot is being overwritten, costs at most the rest of its slot.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::io::{self, Read};
use std::path::Path;
use std::sync::Arc;

use guerdon_core::clock::seconds;
use serde::{Serialize, Serializer};

use crate::timeline::builder::{DROPPED, GAVE_BACK, READY};
use crate::timeline::encoder::{PACKET, descriptor, event, interned, packet};
use crate::timeline::open_file::open_file;
use crate::timeline::proto::{Field, Fields};
use crate::timeline::ring::GRAIN;

/// The slices of one function.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct FunctionSummary {
    /// Calls in them.
    pub calls: u64,
    pub failed: u64,
    /// Attempts after the first.
    pub retries: u64,
    /// Slices that had not ended.
    pub running: u64,
    #[serde(rename = "busy_s", serialize_with = "in_seconds")]
    pub busy_ns: u64,
    #[serde(rename = "longest_s", serialize_with = "in_seconds")]
    pub longest_ns: u64,
}

/// See the module. `guerdon trace --json` prints it as it is serialized.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Summary {
    pub processes: Vec<String>,
    /// Time from the first event to the last.
    #[serde(rename = "span_s", serialize_with = "in_seconds")]
    pub span_ns: u64,
    pub batches: usize,
    /// Tracks with something on them.
    pub tracks: usize,
    pub slices: usize,
    pub instants: usize,
    #[serde(rename = "counter_values")]
    pub counters: usize,
    #[serde(rename = "dropped_events")]
    pub dropped: u64,
    pub functions: BTreeMap<String, FunctionSummary>,
    /// Counts of killed workers, opened circuit breakers and the like.
    pub moments: BTreeMap<String, u64>,
}

fn in_seconds<S: Serializer>(ns: &u64, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_f64(seconds(*ns))
}

impl Summary {
    /// Reads a file.
    pub fn read(path: &Path) -> io::Result<Self> {
        let mut bytes = Vec::new();
        open_file(path)?.read_to_end(&mut bytes)?;
        let mut reader = Reader::default();
        let mut packets = 0;
        let mut at = 0;
        while at < bytes.len() {
            let mut fields = Fields::of(&bytes[at..]);
            for (field, value) in &mut fields {
                if field == u64::from(PACKET) {
                    reader.packet(value.bytes());
                    packets += 1;
                }
            }
            if fields.rest.is_empty() {
                break;
            }
            // The next slot begins at a multiple of it.
            at = (bytes.len() - fields.rest.len() + 1).next_multiple_of(GRAIN);
        }
        // A file to which nothing was written yet has packets of padding only.
        let begins_with_packet = bytes.first() == Some(&((PACKET << 3 | 2) as u8));
        if packets == 0 || (reader.tracks.is_empty() && reader.events.is_empty() && !begins_with_packet) {
            return Err(io::Error::new(io::ErrorKind::InvalidData, "it is no trace"));
        }
        Ok(reader.finish())
    }

    fn add_slice(&mut self, slice: &Slice, to_ns: Option<u64>) {
        self.slices += 1;
        self.batches += usize::from(slice.is_batch);
        if !slice.is_call || slice.is_batch {
            return;
        }
        let function = self.functions.entry(slice.name.to_string()).or_default();
        function.running += u64::from(to_ns.is_none());
        let ran_ns = to_ns.map_or(0, |to_ns| to_ns.saturating_sub(slice.from_ns));
        if slice.calls.is_none() {
            function.longest_ns = function.longest_ns.max(ran_ns);
            function.retries += u64::from(slice.is_retry);
        }
        // The slice of a frame has those of its calls in it.
        if slice.depth == 0 {
            function.calls += slice.calls.unwrap_or(1);
            function.busy_ns += ran_ns;
            function.failed += slice.failed.unwrap_or_else(|| u64::from(slice.has_failed));
        }
    }
}

/// A slice or an instant, as far as it counts here.
#[derive(Default)]
struct Slice {
    name: Arc<str>,
    from_ns: u64,
    /// Number of slices of its track around it.
    depth: usize,
    is_batch: bool,
    is_call: bool,
    is_retry: bool,
    has_failed: bool,
    /// Number of calls of a frame: its calls, and those of them that failed.
    calls: Option<u64>,
    failed: Option<u64>,
}

impl Slice {
    fn annotate(&mut self, known: &Sequence, annotation: Field<'_>) {
        let (mut key, mut number, mut text) = (None, 0, None);
        for (field, value) in Fields::of(annotation.bytes()) {
            match u32::try_from(field).unwrap_or(0) {
                event::KEY_IID => key = known.keys.get(&value.number()),
                event::NUMBER => number = value.number(),
                event::TEXT_IID => text = known.texts.get(&value.number()),
                _ => {}
            }
        }
        match key.map(|key| &**key) {
            Some("groups") => self.is_batch = true,
            Some("queue_s") => self.is_call = true,
            Some("attempt") => self.is_retry = true,
            Some("calls") => self.calls = Some(number),
            Some("failed") => self.failed = Some(number),
            Some("status") => {
                self.is_call = true;
                self.has_failed =
                    text.is_some_and(|text| ["timeout", "error", "crashed", "cancelled"].contains(&&**text));
            }
            _ => {}
        }
    }
}

enum EventKind {
    Begin(Slice),
    End,
    Instant(Slice),
    Counter(u64),
}

struct Event {
    at_ns: u64,
    track: u64,
    kind: EventKind,
}

/// Texts of one sequence by their numbers.
#[derive(Default)]
struct Sequence {
    names: HashMap<u64, Arc<str>>,
    keys: HashMap<u64, Arc<str>>,
    texts: HashMap<u64, Arc<str>>,
}

#[derive(Default)]
struct Reader {
    processes: BTreeMap<u64, String>,
    tracks: HashSet<u64>,
    dropped_tracks: HashSet<u64>,
    sequences: HashMap<u64, Sequence>,
    events: Vec<Event>,
}

impl Reader {
    fn packet(&mut self, bytes: &[u8]) {
        let (mut at_ns, mut sequence, mut flags) = (0, 0, 0);
        let (mut event, mut texts) = (None, None);
        for (field, value) in Fields::of(bytes) {
            match u32::try_from(field).unwrap_or(0) {
                packet::TIMESTAMP => at_ns = value.number(),
                packet::SEQUENCE => sequence = value.number(),
                packet::SEQUENCE_FLAGS => flags = value.number(),
                packet::TRACK_EVENT => event = Some(value.bytes()),
                packet::INTERNED => texts = Some(value.bytes()),
                packet::TRACK_DESCRIPTOR => self.describe(value.bytes()),
                _ => {}
            }
        }
        if flags & 1 != 0 {
            self.sequences.insert(sequence, Sequence::default());
        }
        if let Some(texts) = texts {
            self.intern(sequence, texts);
        }
        if let Some(event) = event {
            self.event(sequence, at_ns, event);
        }
    }

    fn describe(&mut self, bytes: &[u8]) {
        let (mut uuid, mut name, mut is_process) = (0, String::new(), false);
        for (field, value) in Fields::of(bytes) {
            match u32::try_from(field).unwrap_or(0) {
                descriptor::UUID => uuid = value.number(),
                descriptor::NAME => name = value.text(),
                descriptor::PROCESS => is_process = true,
                _ => {}
            }
        }
        self.tracks.insert(uuid);
        if name == DROPPED {
            self.dropped_tracks.insert(uuid);
        }
        if is_process {
            self.processes.insert(uuid, name);
        }
    }

    fn intern(&mut self, sequence: u64, bytes: &[u8]) {
        let known = self.sequences.entry(sequence).or_default();
        for (field, value) in Fields::of(bytes) {
            let into = match u32::try_from(field).unwrap_or(0) {
                interned::NAMES => &mut known.names,
                interned::KEYS => &mut known.keys,
                interned::TEXTS => &mut known.texts,
                _ => continue,
            };
            let (mut iid, mut text) = (0, String::new());
            for (field, value) in Fields::of(value.bytes()) {
                match field {
                    1 => iid = value.number(),
                    2 => text = value.text(),
                    _ => {}
                }
            }
            into.insert(iid, text.into());
        }
    }

    fn event(&mut self, sequence: u64, at_ns: u64, bytes: &[u8]) {
        let unknown = Sequence::default();
        let known = self.sequences.get(&sequence).unwrap_or(&unknown);
        let (mut kind, mut track, mut counter) = (0, 0, 0);
        let mut slice = Slice { from_ns: at_ns, ..Slice::default() };
        for (field, value) in Fields::of(bytes) {
            match u32::try_from(field).unwrap_or(0) {
                event::TYPE => kind = value.number(),
                event::TRACK => track = value.number(),
                event::COUNTER_VALUE => counter = value.number(),
                event::NAME_IID => slice.name = known.names.get(&value.number()).cloned().unwrap_or_default(),
                event::ANNOTATIONS => slice.annotate(known, value),
                _ => {}
            }
        }
        let kind = match kind {
            event::BEGIN => EventKind::Begin(slice),
            event::END => EventKind::End,
            event::INSTANT => EventKind::Instant(slice),
            event::COUNTER => EventKind::Counter(counter),
            _ => return,
        };
        self.events.push(Event { at_ns, track, kind });
    }

    fn finish(mut self) -> Summary {
        // Simultaneous events have ends first; equal events stay in the order of the file.
        self.events.sort_by_key(|event| (event.at_ns, !matches!(event.kind, EventKind::End)));
        let span = self.events.first().zip(self.events.last());
        let span_ns = span.map_or(0, |(first, last)| last.at_ns - first.at_ns);
        let mut summary = Summary { processes: self.processes.into_values().collect(), span_ns, ..Summary::default() };
        let mut used = HashSet::new();
        let mut dropped: HashMap<u64, u64> = HashMap::new();
        let mut open: HashMap<u64, Vec<Slice>> = HashMap::new();
        for Event { at_ns, track, kind } in self.events {
            match kind {
                EventKind::Begin(slice) => {
                    let stack = open.entry(track).or_default();
                    stack.push(Slice { depth: stack.len(), ..slice });
                }
                EventKind::End => {
                    let Some(slice) = open.get_mut(&track).and_then(Vec::pop) else { continue };
                    summary.add_slice(&slice, Some(at_ns));
                }
                EventKind::Instant(slice) => {
                    summary.instants += 1;
                    if self.tracks.contains(&track) && ![READY, GAVE_BACK].contains(&&*slice.name) {
                        *summary.moments.entry(slice.name.to_string()).or_default() += 1;
                    }
                }
                EventKind::Counter(value) => {
                    summary.counters += 1;
                    if self.dropped_tracks.contains(&track) {
                        dropped.insert(track, value);
                    }
                }
            }
            used.insert(track);
        }
        for slice in open.into_values().flatten() {
            summary.add_slice(&slice, None);
        }
        summary.tracks = used.len();
        summary.dropped = dropped.into_values().sum();
        summary
    }
}

//! Counts what a timeline holds, also while it is written.
//!
//! Damage, as where a slot is being overwritten, costs at most the rest of its slot.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::io::{self, Read};
use std::path::Path;

use bytes::Bytes;
use guerdon_core::clock::seconds;
use prost::Message;
use serde::{Serialize, Serializer};

use crate::timeline::builder::{DROPPED, GAVE_BACK, READY};
use crate::timeline::open_file::open_file;
use crate::timeline::packets::{EventKind, PACKET_TAG, Packet, Packets, TrackDescriptor, TrackEvent, Value};
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
        let bytes = Bytes::from(bytes);
        let mut reader = Reader::default();
        let mut found = 0;
        let mut at = 0;
        while at < bytes.len() {
            let mut packets = Packets { rest: bytes.slice(at..) };
            for packet in &mut packets {
                reader.packet(packet);
                found += 1;
            }
            if packets.rest.is_empty() {
                break;
            }
            // The next slot begins at a multiple of it.
            at = (bytes.len() - packets.rest.len() + 1).next_multiple_of(GRAIN);
        }
        // A file to which nothing was written yet has packets of padding only.
        let begins_with_packet = bytes.first() == Some(&PACKET_TAG);
        if found == 0 || (reader.tracks.is_empty() && reader.events.is_empty() && !begins_with_packet) {
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
        let function = self.functions.entry(text(&slice.name)).or_default();
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

/// A slice, as far as it counts here.
#[derive(Default)]
struct Slice {
    name: Bytes,
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
    fn of(event: TrackEvent, from_ns: u64, depth: usize) -> Self {
        let mut slice = Self { name: event.name, from_ns, depth, ..Self::default() };
        for detail in event.details {
            let number = if let Some(Value::Number(number)) = detail.value { Some(number) } else { None };
            match &*detail.key {
                b"groups" => slice.is_batch = true,
                b"queue_s" => slice.is_call = true,
                b"attempt" => slice.is_retry = true,
                b"calls" => slice.calls = number,
                b"failed" => slice.failed = number,
                b"status" => {
                    slice.is_call = true;
                    slice.has_failed = matches!(&detail.value, Some(Value::Text(status))
                        if [&b"timeout"[..], b"error", b"crashed", b"cancelled"].contains(&&**status));
                }
                _ => {}
            }
        }
        slice
    }
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

#[derive(Default)]
struct Reader {
    processes: BTreeMap<u64, String>,
    tracks: HashSet<u64>,
    dropped_tracks: HashSet<u64>,
    events: Vec<(u64, TrackEvent)>,
}

impl Reader {
    fn packet(&mut self, packet: Bytes) {
        let Ok(Packet { at_ns, event, track, .. }) = Packet::decode(packet) else { return };
        if let Some(track) = track {
            self.describe(&track);
        }
        self.events.extend(event.map(|event| (at_ns.unwrap_or(0), event)));
    }

    fn describe(&mut self, track: &TrackDescriptor) {
        self.tracks.insert(track.uuid);
        if track.name == DROPPED {
            self.dropped_tracks.insert(track.uuid);
        }
        if track.process.is_some() {
            self.processes.insert(track.uuid, text(&track.name));
        }
    }

    fn finish(mut self) -> Summary {
        // Simultaneous events have ends first; equal events stay in the order of the file.
        self.events.sort_by_key(|(at_ns, event)| (*at_ns, event.kind() != EventKind::End));
        let span = self.events.first().zip(self.events.last());
        let span_ns = span.map_or(0, |(first, last)| last.0 - first.0);
        let mut summary = Summary { processes: self.processes.into_values().collect(), span_ns, ..Summary::default() };
        let mut used = HashSet::new();
        let mut dropped: HashMap<u64, u64> = HashMap::new();
        let mut open: HashMap<u64, Vec<Slice>> = HashMap::new();
        for (at_ns, event) in self.events {
            let track = event.track;
            match event.kind() {
                EventKind::Begin => {
                    let stack = open.entry(track).or_default();
                    stack.push(Slice::of(event, at_ns, stack.len()));
                }
                EventKind::End => {
                    let Some(slice) = open.get_mut(&track).and_then(Vec::pop) else { continue };
                    summary.add_slice(&slice, Some(at_ns));
                }
                EventKind::Instant => {
                    summary.instants += 1;
                    if self.tracks.contains(&track) && event.name != READY && event.name != GAVE_BACK {
                        *summary.moments.entry(text(&event.name)).or_default() += 1;
                    }
                }
                EventKind::Counter => {
                    summary.counters += 1;
                    if self.dropped_tracks.contains(&track) {
                        dropped.insert(track, event.value.unwrap_or(0));
                    }
                }
                EventKind::Unspecified => continue,
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

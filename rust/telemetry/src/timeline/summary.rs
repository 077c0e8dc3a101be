//! Summary of a timeline, which may still be written.
//!
//! Damage, such as a slot that is being overwritten, costs at most the rest of the slot.

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
    /// Number of calls.
    pub calls: u64,
    pub failed: u64,
    /// Attempts after the first.
    pub retries: u64,
    /// Attempts that a server put off (429).
    pub deferred: u64,
    /// Number of slices without an end.
    pub running: u64,
    #[serde(rename = "busy_s", serialize_with = "in_seconds")]
    pub busy_ns: u64,
    #[serde(rename = "longest_s", serialize_with = "in_seconds")]
    pub longest_ns: u64,
}

/// Summary of a timeline, which `guerdon trace --json` prints as it is serialized.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Summary {
    pub processes: Vec<String>,
    /// Time from the first event to the last.
    #[serde(rename = "span_s", serialize_with = "in_seconds")]
    pub span_ns: u64,
    pub batches: usize,
    /// Number of tracks with events.
    pub tracks: usize,
    pub slices: usize,
    pub instants: usize,
    #[serde(rename = "counter_values")]
    pub counters: usize,
    #[serde(rename = "dropped_events")]
    pub dropped: u64,
    pub functions: BTreeMap<String, FunctionSummary>,
    /// Counts of events such as killed workers and opened circuit breakers.
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
        // A file without events has packets of padding only.
        let begins_with_packet = bytes.first() == Some(&PACKET_TAG);
        if found == 0 || (reader.tracks.is_empty() && reader.events.is_empty() && !begins_with_packet) {
            return Err(io::Error::new(io::ErrorKind::InvalidData, "it is no trace"));
        }
        Ok(reader.finish())
    }

    /// Adds a slice that began with `event`; `depth` is the number of slices that enclose it.
    fn add_slice(&mut self, event: &TrackEvent, depth: usize, from_ns: u64, to_ns: Option<u64>) {
        self.slices += 1;
        if event.detail("groups").is_some() {
            self.batches += 1;
            return;
        }
        let status = event.detail("status");
        if status.is_none() && event.detail("queue_s").is_none() {
            return;
        }
        let number = |key| if let Some(Value::Number(number)) = event.detail(key) { Some(*number) } else { None };
        let function = self.functions.entry(text(&event.name)).or_default();
        function.running += u64::from(to_ns.is_none());
        let ran_ns = to_ns.map_or(0, |to_ns| to_ns.saturating_sub(from_ns));
        let calls = number("calls");
        if calls.is_none() {
            function.longest_ns = function.longest_ns.max(ran_ns);
            function.retries += u64::from(event.detail("attempt").is_some());
            function.deferred += u64::from(matches!(status, Some(Value::Text(status)) if **status == *b"deferred"));
        }
        // The slice of a frame encloses those of its calls.
        if depth == 0 {
            function.calls += calls.unwrap_or(1);
            function.busy_ns += ran_ns;
            let has_failed = matches!(status, Some(Value::Text(status))
                if [&b"timeout"[..], b"error", b"crashed", b"cancelled"].contains(&&**status));
            function.failed += number("failed").unwrap_or_else(|| u64::from(has_failed));
        }
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
        let mut open: HashMap<u64, Vec<(u64, TrackEvent)>> = HashMap::new();
        for (at_ns, event) in self.events {
            let track = event.track;
            match event.kind() {
                EventKind::Begin => {
                    open.entry(track).or_default().push((at_ns, event));
                }
                EventKind::End => {
                    let Some(stack) = open.get_mut(&track) else { continue };
                    let Some((from_ns, event)) = stack.pop() else { continue };
                    summary.add_slice(&event, stack.len(), from_ns, Some(at_ns));
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
        for (depth, (from_ns, event)) in open.into_values().flat_map(|stack| stack.into_iter().enumerate()) {
            summary.add_slice(&event, depth, from_ns, None);
        }
        summary.tracks = used.len();
        summary.dropped = dropped.into_values().sum();
        summary
    }
}

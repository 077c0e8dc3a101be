//! Reads traces of this crate, also while they are written.
//!
//! What is damaged, as where a slot is being overwritten, is left out up to the next slot; the rest
//! is read.

use std::borrow::Cow;
use std::collections::{BTreeMap, HashMap};
use std::io::{self, Read};
use std::path::Path;
use std::sync::Arc;

use crate::encoder::{PACKET, clock, descriptor, event, interned, packet};
use crate::item::{Details, Value};
use crate::open_file::open_file;
use crate::proto::{Field, Fields};
use crate::ring::GRAIN;
use crate::tracks::TrackKind;

/// A track of a trace that was read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TrackInfo {
    pub parent: Option<u64>,
    pub name: String,
    pub(crate) kind: TrackKind,
}

impl TrackInfo {
    #[must_use]
    pub const fn is_process(&self) -> bool {
        matches!(self.kind, TrackKind::Process(_))
    }
}

/// A slice of a trace that was read.
#[derive(Clone, Debug, PartialEq)]
pub struct Slice {
    pub track: u64,
    pub depth: u8,
    pub from_ns: u64,
    /// `None`: it had not ended.
    pub to_ns: Option<u64>,
    pub details: Arc<Details>,
}

impl Slice {
    /// A number that goes with it.
    #[must_use]
    pub fn number(&self, key: &str) -> Option<u64> {
        number(&self.details, key)
    }
}

/// A number that goes with a slice or an instant.
pub(crate) fn number(details: &Details, key: &str) -> Option<u64> {
    details.values.iter().find_map(|(name, value)| match value {
        Value::Number(number) if name == key => Some(*number),
        _ => None,
    })
}

/// What a file holds.
#[derive(Debug, Default)]
pub struct Recording {
    pub tracks: BTreeMap<u64, TrackInfo>,
    /// In the order of their beginnings.
    pub slices: Vec<Slice>,
    /// Track, time and what goes with it.
    pub instants: Vec<(u64, u64, Arc<Details>)>,
    /// Track, time and value.
    pub counters: Vec<(u64, u64, u64)>,
    /// What the system's time is ahead of the file's.
    pub real_offset_ns: u64,
}

impl Recording {
    /// The first and the last time.
    #[must_use]
    pub fn span(&self) -> Option<(u64, u64)> {
        let slices = self.slices.iter().flat_map(|slice| [Some(slice.from_ns), slice.to_ns]).flatten();
        let others = self.instants.iter().map(|one| one.1).chain(self.counters.iter().map(|one| one.1));
        slices.chain(others).fold(None, |span, at| {
            let (from, to) = span.unwrap_or((at, at));
            Some((at.min(from), at.max(to)))
        })
    }

    /// The process of a track.
    pub(crate) fn root(&self, track: u64) -> u64 {
        self.path(track).last().copied().unwrap_or(track)
    }

    /// A track and those above it.
    pub(crate) fn path(&self, track: u64) -> Vec<u64> {
        let mut path = vec![track];
        // A file may say that a track is above itself.
        while let Some(parent) = path.last().and_then(|last| self.tracks.get(last)).and_then(|track| track.parent)
            && !path.contains(&parent)
        {
            path.push(parent);
        }
        path
    }
}

enum Happened {
    Begin(Arc<Details>),
    End,
    Instant(Arc<Details>),
    Counter(u64),
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
    recording: Recording,
    sequences: HashMap<u64, Sequence>,
    happened: Vec<(u64, u64, Happened)>,
}

/// Reads a file.
pub fn read(path: &Path) -> io::Result<Recording> {
    let mut bytes = Vec::new();
    open_file(path)?.read_to_end(&mut bytes)?;
    let mut reader = Reader::default();
    let mut at = 0;
    let mut packets = 0;
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
        // Another slot begins at a multiple of it.
        at = (bytes.len() - fields.rest.len() + 1).next_multiple_of(GRAIN);
    }
    if packets == 0
        || (reader.recording.tracks.is_empty() && !bytes.is_empty() && reader.happened.is_empty() && bytes[0] != 10)
    {
        return Err(io::Error::new(io::ErrorKind::InvalidData, "it is no trace"));
    }
    Ok(reader.finish())
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
                packet::CLOCK_SNAPSHOT => self.clocks(value.bytes()),
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

    fn clocks(&mut self, bytes: &[u8]) {
        let mut times = HashMap::new();
        for (_, one) in Fields::of(bytes).filter(|(field, _)| *field == 1) {
            let (mut id, mut now_ns) = (0, 0);
            for (field, value) in Fields::of(one.bytes()) {
                match field {
                    1 => id = value.number(),
                    2 => now_ns = value.number(),
                    _ => {}
                }
            }
            times.insert(id, now_ns);
        }
        if let (Some(real), Some(boot)) = (times.get(&clock::REALTIME), times.get(&clock::BOOTTIME)) {
            self.recording.real_offset_ns = real.saturating_sub(*boot);
        }
    }

    fn describe(&mut self, bytes: &[u8]) {
        let (mut uuid, mut info) = (0, TrackInfo { parent: None, name: String::new(), kind: TrackKind::Slices });
        for (field, value) in Fields::of(bytes) {
            match u32::try_from(field).unwrap_or(0) {
                descriptor::UUID => uuid = value.number(),
                descriptor::NAME => info.name = value.text(),
                descriptor::PARENT => info.parent = Some(value.number()),
                descriptor::COUNTER => info.kind = TrackKind::Counter,
                descriptor::PROCESS => {
                    let pid = Fields::of(value.bytes()).find(|(field, _)| *field == u64::from(descriptor::PROCESS_PID));
                    let pid = pid.map_or(0, |(_, pid)| pid.number());
                    info.kind = TrackKind::Process(u32::try_from(pid).unwrap_or(0));
                }
                _ => {}
            }
        }
        self.recording.tracks.insert(uuid, info);
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
        let (mut kind, mut track, mut counter, mut details) = (0, 0, 0, Details::default());
        for (field, value) in Fields::of(bytes) {
            match u32::try_from(field).unwrap_or(0) {
                event::TYPE => kind = value.number(),
                event::TRACK => track = value.number(),
                event::COUNTER_VALUE => counter = value.number(),
                event::NAME_IID => details.name = known.names.get(&value.number()).cloned().unwrap_or_default(),
                event::FLOWS => details.flows.push(value.number()),
                event::ANNOTATIONS => details.values.extend(annotation(known, value)),
                _ => {}
            }
        }
        let happened = match kind {
            event::BEGIN => Happened::Begin(details.into()),
            event::END => Happened::End,
            event::INSTANT => Happened::Instant(details.into()),
            event::COUNTER => Happened::Counter(counter),
            _ => return,
        };
        self.happened.push((at_ns, track, happened));
    }

    fn finish(mut self) -> Recording {
        // At one time ends come first; what is equal stays as it stands in the file.
        self.happened.sort_by_key(|(at_ns, _, happened)| (*at_ns, !matches!(happened, Happened::End)));
        let mut recording = self.recording;
        let mut open: HashMap<u64, Vec<usize>> = HashMap::new();
        for (at_ns, track, happened) in self.happened {
            let stack = open.entry(track).or_default();
            match happened {
                Happened::Begin(details) => {
                    let depth = u8::try_from(stack.len()).unwrap_or(u8::MAX);
                    stack.push(recording.slices.len());
                    recording.slices.push(Slice { track, depth, from_ns: at_ns, to_ns: None, details });
                }
                Happened::End => {
                    if let Some(slice) = stack.pop() {
                        recording.slices[slice].to_ns = Some(at_ns);
                    }
                }
                Happened::Instant(details) => recording.instants.push((track, at_ns, details)),
                Happened::Counter(value) => recording.counters.push((track, at_ns, value)),
            }
        }
        recording
    }
}

fn annotation(known: &Sequence, annotation: Field<'_>) -> Option<(Cow<'static, str>, Value)> {
    let (mut key, mut found) = (None, None);
    for (field, value) in Fields::of(annotation.bytes()) {
        match u32::try_from(field).unwrap_or(0) {
            event::KEY_IID => key = known.keys.get(&value.number()),
            event::NUMBER => found = Some(Value::Number(value.number())),
            event::REAL => found = Some(Value::Real(f64::from_bits(value.number()))),
            event::TEXT_IID => found = known.texts.get(&value.number()).cloned().map(Value::Text),
            _ => {}
        }
    }
    Some((Cow::Owned(key?.to_string()), found?))
}

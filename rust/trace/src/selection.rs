//! A part of one or several traces, as a trace of its own.
//!
//! - A slice that reaches into the time that was asked for stays whole.
//! - What shows when something happened stays, whatever function was asked for: batches, kills.
//! - Several files are brought to one clock by the system's time; their processes stay apart.

use std::collections::{BTreeSet, HashMap, HashSet};
use std::io::{self, Write};

use crate::encoder::{Clocks, Segment};
use crate::item::{Details, Item, ItemKind, TrackId};
use crate::reader::{Recording, number};
use crate::tracks::Tracks;

/// Items that have texts in common.
const SEGMENT: usize = 1 << 13;

/// What is kept of a trace; all of it by default.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Selection {
    /// Seconds from the start of the trace.
    pub from_s: Option<f64>,
    pub to_s: Option<f64>,
    /// Seconds before its end.
    pub last_s: Option<f64>,
    /// Names; none for all.
    pub functions: Vec<String>,
    /// Trainer's steps; none for all.
    pub steps: Vec<u64>,
}

#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "not negative, and saturating")]
fn nanos(seconds: f64) -> u64 {
    (seconds.max(0.0) * 1e9) as u64
}

impl Selection {
    /// From when to when, of a trace with this span.
    fn window(&self, (start, end): (u64, u64)) -> (u64, u64) {
        let after = |seconds: f64| start.saturating_add(nanos(seconds));
        let from = self.from_s.map_or(0, after);
        let last = self.last_s.map_or(0, |seconds| end.saturating_sub(nanos(seconds)));
        (from.max(last), self.to_s.map_or(u64::MAX, after))
    }
}

/// Brings traces to the clock of the first.
fn align(recordings: &mut [Recording]) {
    let Some(first) = recordings.first().map(|one| one.real_offset_ns) else { return };
    for one in recordings.iter_mut().skip(1) {
        let ahead = i64::try_from(i128::from(one.real_offset_ns) - i128::from(first)).unwrap_or(0);
        let shift = |at_ns: &mut u64| *at_ns = at_ns.saturating_add_signed(ahead);
        for slice in &mut one.slices {
            shift(&mut slice.from_ns);
            slice.to_ns.iter_mut().for_each(shift);
        }
        one.instants.iter_mut().for_each(|(_, at_ns, _)| shift(at_ns));
        one.counters.iter_mut().for_each(|(_, at_ns, _)| shift(at_ns));
        one.real_offset_ns = first;
    }
}

/// Leaves in traces what is selected, on one clock.
pub fn select(recordings: &mut [Recording], selection: &Selection) {
    align(recordings);
    let spans = recordings.iter().filter_map(Recording::span);
    let span = spans.reduce(|all, one| (all.0.min(one.0), all.1.max(one.1)));
    let Some(span) = span else { return };
    let window = selection.window(span);
    for one in recordings {
        select_in(one, selection, window);
    }
}

fn select_in(recording: &mut Recording, selection: &Selection, (mut from, mut to): (u64, u64)) {
    if !selection.steps.is_empty() {
        let of_step = |step: Option<u64>| step.is_some_and(|step| selection.steps.contains(&step));
        let batches: BTreeSet<u64> = recording
            .slices
            .iter()
            .filter(|one| of_step(one.number("step")))
            .filter_map(|one| one.number("batch"))
            .collect();
        let is_of = |details: &Details| number(details, "batch").is_some_and(|batch| batches.contains(&batch));
        recording.slices.retain(|slice| is_of(&slice.details));
        let has_batch = |details: &Details| number(details, "batch").is_some();
        recording.instants.retain(|(_, _, details)| !has_batch(details) || is_of(details));
        let begin = recording.slices.iter().map(|slice| slice.from_ns).min().unwrap_or(u64::MAX);
        let end = recording.slices.iter().filter_map(|slice| slice.to_ns).max().unwrap_or(0);
        (from, to) = (from.max(begin), to.min(end));
    }
    if !selection.functions.is_empty() {
        let functions: HashSet<&str> = selection.functions.iter().map(String::as_str).collect();
        let is_of_group = |name: &str| {
            functions.iter().any(|one| {
                name.strip_prefix(one)
                    .is_some_and(|lane| lane.starts_with(" (") && lane.ends_with(')') && !lane[2..].contains('('))
            })
        };
        let mut kept: HashMap<u64, Option<bool>> = HashMap::new();
        for track in recording.tracks.keys() {
            let path = recording.path(*track);
            let names: Vec<&str> =
                path.iter().filter_map(|one| recording.tracks.get(one)).map(|one| &*one.name).collect();
            // Of functions those below the process are groups, each with its tracks.
            let group = names.len().checked_sub(2).map(|place| names[place]);
            let is_shared = |name: &str| SHARED.contains(&name);
            kept.insert(
                *track,
                match group {
                    None => Some(true),
                    Some(name) if is_shared(name) => None,
                    Some(name) => Some(is_of_group(name)),
                },
            );
        }
        let keeps = |track: u64| kept.get(&track).copied().unwrap_or(Some(false));
        let batches: HashSet<u64> =
            recording.tracks.iter().filter(|(_, one)| one.name == SHARED[0]).map(|(id, _)| *id).collect();
        let parent = |track: u64| recording.tracks.get(&track).and_then(|one| one.parent);
        let is_batch = |track: u64| batches.contains(&track) || parent(track).is_some_and(|one| batches.contains(&one));
        recording.slices.retain(|slice| {
            keeps(slice.track).unwrap_or_else(|| is_batch(slice.track) || functions.contains(&*slice.details.name))
        });
        recording.instants.retain(|(track, ..)| keeps(*track).unwrap_or(true));
        recording.counters.retain(|(track, ..)| keeps(*track).unwrap_or(true));
    }
    recording.slices.retain(|slice| slice.from_ns <= to && slice.to_ns.is_none_or(|end| end >= from));
    recording.instants.retain(|(_, at_ns, _)| (from..=to).contains(at_ns));
    // A counter's value holds until the next: the last one before counts from the start on.
    let mut before: HashMap<u64, u64> = HashMap::new();
    for (track, at_ns, value) in &recording.counters {
        if *at_ns < from {
            before.insert(*track, *value);
        }
    }
    recording.counters.retain(|(_, at_ns, _)| (from..=to).contains(at_ns));
    let mut start: Vec<(u64, u64, u64)> = before.into_iter().map(|(track, value)| (track, from, value)).collect();
    start.sort_unstable();
    start.append(&mut recording.counters);
    recording.counters = start;
}

/// Groups of tracks on which slices of several functions stand; batches first.
const SHARED: [&str; 5] = ["batches", "workers", "threads", "event loops", "endpoints"];

/// Writes traces as one.
pub fn write(recordings: &[Recording], into: &mut impl Write) -> io::Result<()> {
    let mut tracks = Tracks::new(0);
    let mut items = Vec::new();
    for (file, recording) in recordings.iter().enumerate() {
        let mut known: HashMap<u64, TrackId> = HashMap::new();
        for track in recording.tracks.keys() {
            place(&mut tracks, &mut known, recording, *track, file);
        }
        let mut push = |track: &u64, at_ns, depth, kind| {
            if let Some(track) = known.get(track) {
                items.push(Item { at_ns, depth, track: *track, kind });
            }
        };
        for slice in &recording.slices {
            push(&slice.track, slice.from_ns, slice.depth, ItemKind::Begin(Box::new((*slice.details).clone())));
            if let Some(to_ns) = slice.to_ns {
                push(&slice.track, to_ns, slice.depth, ItemKind::End);
            }
        }
        for (track, at_ns, details) in &recording.instants {
            push(track, *at_ns, 0, ItemKind::Instant(Box::new((**details).clone())));
        }
        for (track, at_ns, value) in &recording.counters {
            push(track, *at_ns, 0, ItemKind::Counter(*value));
        }
    }
    items.sort_by_key(Item::order);
    let boot_ns = items.first().map_or(0, |item| item.at_ns);
    let real_ns = boot_ns.saturating_add(recordings.first().map_or(0, |one| one.real_offset_ns));
    let clocks = Clocks { boot_ns, real_ns, monotonic_ns: boot_ns };
    let mut described = HashSet::new();
    if items.is_empty() {
        return into.write_all(&Segment::encode(&tracks, &mut described, 1, clocks, &mut []));
    }
    for (number, part) in items.chunks_mut(SEGMENT).enumerate() {
        into.write_all(&Segment::encode(&tracks, &mut described, number as u64 + 1, clocks, part))?;
    }
    Ok(())
}

/// The place of a track that was read among those that are written.
fn place(tracks: &mut Tracks, known: &mut HashMap<u64, TrackId>, recording: &Recording, track: u64, file: usize) {
    let mut parent = None;
    for one in recording.path(track).into_iter().rev() {
        let Some(info) = recording.tracks.get(&one) else { continue };
        parent = Some(match known.get(&one) {
            Some(id) => *id,
            None => {
                // Processes of two files may have one name.
                let id = match parent {
                    None => tracks.root(&info.name, info.kind, file as u64),
                    Some(_) => tracks.of(parent, &info.name, info.kind),
                };
                known.insert(one, id);
                id
            }
        });
    }
}

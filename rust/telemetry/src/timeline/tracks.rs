//! The tree of a timeline's tracks.
//!
//! - A track's number in files is a hash of its path and the process, so that it is the same in all
//!   slots of a file, and differs between files.
//! - Slices of one track never overlap, and each keeps its times: calls that run concurrently have
//!   several tracks, and each slice gets a track that is free during its time.

use std::collections::{HashMap, VecDeque};

use bytes::Bytes;

use crate::timeline::item::TrackId;
use crate::timeline::packets::shortened;

/// Number of a track's last slices that are kept, for slices that are reported late.
const SPANS: usize = 64;

/// Kind of a track.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum TrackKind {
    /// The root of a process's tracks: its id.
    Process(u32),
    /// Slices and instants, or other tracks.
    Slices,
    Counter,
}

pub(crate) struct Track {
    pub uuid: u64,
    pub parent: Option<TrackId>,
    pub name: Bytes,
    pub kind: TrackKind,
    /// Order among its siblings.
    pub rank: u32,
    busy: BusySpans,
}

/// Times at which a track has slices.
#[derive(Default)]
pub(crate) struct BusySpans {
    /// Starts and ends, in order.
    spans: VecDeque<(u64, u64)>,
    /// No time before it is known to be free.
    since_ns: u64,
}

impl BusySpans {
    /// Returns the first gap that ends after a moment: the end of the slice before it, and the
    /// start of the next one.
    pub(crate) fn gap(&self, at_ns: u64) -> (u64, u64) {
        let next = self.spans.partition_point(|(from, _)| *from <= at_ns);
        let mut free_ns = next.checked_sub(1).map_or(self.since_ns, |before| self.spans[before].1);
        for (from, to) in self.spans.range(next..) {
            if *from > free_ns.max(at_ns) {
                return (free_ns, *from);
            }
            free_ns = *to;
        }
        (free_ns, u64::MAX)
    }

    /// Returns the start of the gap that has room for a slice, if there is one. A slice that is
    /// reported late must end before the next one begins: readers take simultaneous events in the
    /// order of the file.
    fn free_since(&self, from_ns: u64, to_ns: u64) -> Option<u64> {
        let (free_ns, next_ns) = self.gap(from_ns);
        (free_ns <= from_ns && to_ns < next_ns).then_some(free_ns)
    }

    /// Returns the end of the last slice.
    pub(crate) fn last_end_ns(&self) -> u64 {
        self.spans.back().map_or(0, |(_, to_ns)| *to_ns)
    }

    /// Adds a slice at a time at which the track is free.
    pub(crate) fn take(&mut self, from_ns: u64, to_ns: u64) {
        let place = self.spans.partition_point(|(from, _)| *from <= from_ns);
        self.spans.insert(place, (from_ns, to_ns));
        if self.spans.len() > SPANS
            && let Some((_, to_ns)) = self.spans.pop_front()
        {
            self.since_ns = to_ns;
        }
    }
}

#[derive(Default)]
pub(crate) struct Tracks {
    all: Vec<Track>,
    known: HashMap<(Option<TrackId>, Bytes), TrackId>,
    /// Tracks below a track whose slices overlap.
    lanes: HashMap<TrackId, Vec<TrackId>>,
    salt: u64,
}

impl Tracks {
    /// `salt` differs between processes.
    pub(crate) fn new(salt: u64) -> Self {
        Self { salt, ..Self::default() }
    }

    pub(crate) fn get(&self, track: TrackId) -> &Track {
        &self.all[track]
    }

    /// Returns the track of this name below a parent, which is made if it does not exist.
    pub(crate) fn of(&mut self, parent: Option<TrackId>, name: &str, kind: TrackKind) -> TrackId {
        let name = shortened(name);
        if let Some(track) = self.known.get(&(parent, name.clone())) {
            return *track;
        }
        let above = parent.map_or(self.salt, |parent| self.all[parent].uuid);
        let track = self.all.len();
        let mut hasher = blake3::Hasher::new();
        hasher.update(&above.to_le_bytes());
        hasher.update(&name);
        let uuid = first_u64(&hasher);
        let rank = self.all.len() as u32;
        self.all.push(Track { uuid, parent, name: name.clone(), kind, rank, busy: BusySpans::default() });
        self.known.insert((parent, name), track);
        track
    }

    /// Returns the times at which a track has slices.
    pub(crate) fn busy(&mut self, track: TrackId) -> &mut BusySpans {
        &mut self.all[track].busy
    }

    /// Puts a slice on a free track below `parent`: on the one that was used last, so that the
    /// others stay free for slices that began earlier.
    pub(crate) fn beside(&mut self, parent: TrackId, from_ns: u64, to_ns: u64) -> TrackId {
        let track = self.free_beside(parent, from_ns, to_ns, &[]);
        self.busy(track).take(from_ns, to_ns);
        track
    }

    /// Returns such a track that is not in `except`, without putting a slice on it.
    pub(crate) fn free_beside(&mut self, parent: TrackId, from_ns: u64, to_ns: u64, except: &[TrackId]) -> TrackId {
        let lanes = self.lanes.entry(parent).or_default();
        let free = lanes
            .iter()
            .copied()
            .filter(|lane| !except.contains(lane))
            .filter_map(|lane| Some((lane, self.all[lane].busy.free_since(from_ns, to_ns)?)));
        if let Some((lane, _)) = free.max_by_key(|(_, since_ns)| *since_ns) {
            return lane;
        }
        let name = format!("{} {}", String::from_utf8_lossy(&self.all[parent].name), lanes.len() + 1);
        let lane = self.of(Some(parent), &name, TrackKind::Slices);
        self.lanes.entry(parent).or_default().push(lane);
        lane
    }
}

/// Returns the beginning of a hash; never 0.
pub(crate) fn first_u64(hasher: &blake3::Hasher) -> u64 {
    let hash = hasher.finalize();
    let mut bytes = [0; 8];
    bytes.copy_from_slice(&hash.as_bytes()[..8]);
    u64::from_le_bytes(bytes).max(1)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        /// Calls of one track never overlap, however the calls do, and there are no more tracks
        /// than calls at a time.
        #[test]
        fn concurrent_calls_have_tracks_of_their_own(mut calls in prop::collection::vec((0..100_u64, 1..30_u64), 1..60)) {
            calls.sort_by_key(|(start, length)| start + length);
            let mut tracks = Tracks::new(1);
            let parent = tracks.of(None, "loop", TrackKind::Slices);
            let mut placed: Vec<(TrackId, u64, u64)> = Vec::new();
            for (start, length) in &calls {
                let track = tracks.beside(parent, *start, start + length);
                for (_, from, to) in placed.iter().filter(|(other, ..)| *other == track) {
                    prop_assert!(to <= start || *from >= start + length);
                }
                placed.push((track, *start, start + length));
            }
            let at_a_time = (0..140).map(|now| calls.iter().filter(|(start, length)| *start <= now && now < start + length).count()).max();
            prop_assert!(tracks.lanes[&parent].len() <= at_a_time.unwrap_or(0));
        }
    }
}

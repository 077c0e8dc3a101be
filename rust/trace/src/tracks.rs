//! The tracks of a timeline, a tree.
//!
//! - A track's number in files is made of its path and of the process, so that it is the same in
//!   all slots of a file, and differs between files.
//! - Slices of one track never overlap: what runs side by side has several, of which each slice
//!   gets one that was free when it began.

use std::collections::HashMap;
use std::sync::Arc;

use crate::item::{TrackId, shortened};

/// What a track is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum TrackKind {
    /// The root of all others of a process: its id.
    Process(u32),
    /// Slices and instants, or other tracks.
    Slices,
    Counter,
}

pub(crate) struct Track {
    pub uuid: u64,
    pub parent: Option<TrackId>,
    pub name: Arc<str>,
    pub kind: TrackKind,
    /// Its place among its siblings.
    pub rank: u32,
    /// When its last slice ended.
    last_end_ns: u64,
}

#[derive(Default)]
pub(crate) struct Tracks {
    all: Vec<Track>,
    known: HashMap<(Option<TrackId>, Arc<str>), TrackId>,
    /// Of a track whose slices run side by side: those that stand for it.
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

    /// A track by its name among those of its parent; made if there is none.
    pub(crate) fn of(&mut self, parent: Option<TrackId>, name: &str, kind: TrackKind) -> TrackId {
        let name: Arc<str> = shortened(name).into();
        if let Some(track) = self.known.get(&(parent, name.clone())) {
            return *track;
        }
        let above = parent.map_or(self.salt, |parent| self.all[parent].uuid);
        let track = self.all.len();
        let mut hasher = blake3::Hasher::new();
        hasher.update(&above.to_le_bytes());
        hasher.update(name.as_bytes());
        let uuid = first_u64(&hasher);
        let rank = self.all.len() as u32;
        self.all.push(Track { uuid, parent, name: name.clone(), kind, rank, last_end_ns: 0 });
        self.known.insert((parent, name), track);
        track
    }

    /// A process's track, of a file: two files may have one of the same name.
    pub(crate) fn root(&mut self, name: &str, kind: TrackKind, file: u64) -> TrackId {
        let salt = std::mem::replace(&mut self.salt, file);
        self.known.remove(&(None, shortened(name).into()));
        let track = self.of(None, name, kind);
        self.salt = salt;
        track
    }

    /// The track for a slice that comes after all others of it; and its times, within what is free.
    pub(crate) fn in_turn(&mut self, track: TrackId, started_ns: u64, ended_ns: u64) -> (u64, u64) {
        let last = &mut self.all[track].last_end_ns;
        let started_ns = started_ns.max(*last);
        let ended_ns = ended_ns.max(started_ns + 1);
        *last = ended_ns;
        (started_ns, ended_ns)
    }

    /// The last slice of a track ended later than was said.
    pub(crate) fn extend(&mut self, track: TrackId, ended_ns: u64) {
        let last = &mut self.all[track].last_end_ns;
        *last = ended_ns.max(*last);
    }

    /// When the last slice of a track ended.
    pub(crate) fn last_end_ns(&self, track: TrackId) -> u64 {
        self.all[track].last_end_ns
    }

    /// One of the tracks below `parent` that was free from `started_ns` on: of these the one that
    /// was used last, so that the others stay free for what began earlier.
    pub(crate) fn beside(&mut self, parent: TrackId, started_ns: u64, ended_ns: u64) -> TrackId {
        let track = self.free_beside(parent, started_ns, &[]);
        self.all[track].last_end_ns = ended_ns.max(started_ns + 1);
        track
    }

    /// The same, of those that are not `taken`, without taking it.
    pub(crate) fn free_beside(&mut self, parent: TrackId, started_ns: u64, taken: &[TrackId]) -> TrackId {
        let lanes = self.lanes.entry(parent).or_default();
        let free =
            lanes.iter().copied().filter(|lane| self.all[*lane].last_end_ns <= started_ns && !taken.contains(lane));
        if let Some(lane) = free.max_by_key(|lane| self.all[*lane].last_end_ns) {
            return lane;
        }
        let name = format!("{} {}", self.all[parent].name, lanes.len() + 1);
        let lane = self.of(Some(parent), &name, TrackKind::Slices);
        self.lanes.entry(parent).or_default().push(lane);
        lane
    }
}

/// The beginning of a hash.
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
        /// However calls overlap, those of one track don't, and there are no more tracks than calls
        /// at a time.
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

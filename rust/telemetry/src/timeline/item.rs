//! Items of a timeline: events on their tracks.

use prost::Message;

use crate::timeline::packets::{EventKind, TrackEvent};

/// A track, by its index in `Tracks`.
pub(crate) type TrackId = usize;

/// An event on a track.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Item {
    pub at_ns: u64,
    /// Number of slices of the track that enclose it.
    pub depth: u8,
    pub track: TrackId,
    pub event: TrackEvent,
}

impl Item {
    /// Returns the sort key with which slices nest: at the same time ends come first, inner before
    /// outer, then beginnings, outer before inner.
    pub(crate) fn order(&self) -> (u64, u8, u8) {
        match self.event.kind() {
            EventKind::End => (self.at_ns, 0, u8::MAX - self.depth),
            EventKind::Begin => (self.at_ns, 1, self.depth),
            EventKind::Instant => (self.at_ns, 2, 0),
            EventKind::Counter | EventKind::Unspecified => (self.at_ns, 3, 0),
        }
    }

    /// Returns the approximate bytes in a file.
    pub(crate) fn bytes(&self) -> usize {
        24 + self.event.encoded_len()
    }
}

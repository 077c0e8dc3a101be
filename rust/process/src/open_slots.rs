//! The slots of one pool that take frames, as sets of bits: finding an idle slot and counting room
//! are quick with any number of slots.

use std::sync::atomic::{AtomicU64, Ordering};

const BITS: usize = 64;

/// Capacity of a slot that takes frames.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Openness {
    /// A worker without a frame.
    Idle,
    /// No worker. A frame starts one unless the pool is narrow.
    Cold,
    /// No worker. A frame starts one.
    Widens,
    /// A worker that holds frames, and takes one more.
    Busy,
}

/// The slots of one pool, by number. Each slot writes its own bits, under its own lock.
#[derive(Debug)]
pub(super) struct OpenSlots {
    /// Sets by `Openness`; each word has 64 slots.
    words: [Vec<AtomicU64>; 4],
}

impl OpenSlots {
    pub(super) fn new(slots: usize) -> Self {
        let set = || (0..slots.div_ceil(BITS)).map(|_| AtomicU64::new(0)).collect();
        Self { words: [set(), set(), set(), set()] }
    }

    /// Moves a slot from one set to another. Meanwhile it is in both, never in neither, so that a
    /// concurrent search finds it.
    pub(super) fn move_slot(&self, slot: usize, from: Option<Openness>, to: Option<Openness>) {
        let bit = 1 << (slot % BITS);
        if let Some(word) = to.and_then(|to| self.words[to as usize].get(slot / BITS)) {
            word.fetch_or(bit, Ordering::AcqRel);
        }
        if let Some(word) = from.and_then(|from| self.words[from as usize].get(slot / BITS)) {
            word.fetch_and(!bit, Ordering::AcqRel);
        }
    }

    /// The first slot of a set.
    pub(super) fn first(&self, openness: Openness) -> Option<usize> {
        let words = self.words[openness as usize].iter().enumerate();
        words
            .map(|(at, word)| (at, word.load(Ordering::Acquire)))
            .find_map(|(at, word)| (word != 0).then(|| at * BITS + word.trailing_zeros() as usize))
    }

    /// Returns the number of slots in a set.
    pub(super) fn count(&self, openness: Openness) -> usize {
        self.words[openness as usize].iter().map(|word| word.load(Ordering::Acquire).count_ones() as usize).sum()
    }
}

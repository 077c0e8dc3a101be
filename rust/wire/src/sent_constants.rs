//! Values that are the same for all samples are sent to a reader once, not with every frame.

use std::collections::VecDeque;

/// The constants that a reader has from earlier frames: the most recent ones, up to its capacity.
#[derive(Debug)]
pub struct SentConstants {
    /// Oldest first.
    recent: VecDeque<u64>,
    /// Number of constants that the reader keeps.
    most: usize,
}

impl SentConstants {
    /// Makes the record of a reader that keeps `most` constants, as
    /// `python/guerdon/_worker/columns.py` does.
    #[must_use]
    pub const fn kept(most: usize) -> Self {
        Self { recent: VecDeque::new(), most }
    }

    /// Makes the record of a reader that keeps no constants.
    #[must_use]
    pub const fn none() -> Self {
        Self::kept(0)
    }

    /// Empties the record, because the last constants written were not sent.
    pub fn forget(&mut self) {
        self.recent.clear();
    }

    /// Returns whether the reader has a constant, and records that it has it from now on.
    pub(crate) fn note(&mut self, number: u64) -> bool {
        let at = self.recent.iter().position(|known| *known == number);
        at.and_then(|at| self.recent.remove(at));
        self.recent.push_back(number);
        if self.recent.len() > self.most {
            self.recent.pop_front();
        }
        at.is_some()
    }
}

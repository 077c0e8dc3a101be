//! Values that are the same for all samples go to a reader once, not with every frame.

use std::collections::VecDeque;

/// The constants that a reader has of earlier frames: those written last, as many as it keeps.
#[derive(Debug)]
pub struct SentConstants {
    /// Oldest first.
    recent: VecDeque<u64>,
    /// Number of constants that the reader keeps.
    most: usize,
}

impl SentConstants {
    /// For a reader that keeps `most` of them; `python/guerdon/_worker/columns.py` does.
    #[must_use]
    pub const fn kept(most: usize) -> Self {
        Self { recent: VecDeque::new(), most }
    }

    /// For a reader that keeps none.
    #[must_use]
    pub const fn none() -> Self {
        Self::kept(0)
    }

    /// Takes the reader to have none: what was written last is not sent.
    pub(crate) fn forget(&mut self) {
        self.recent.clear();
    }

    /// Returns whether the reader has a constant; from now on it does.
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

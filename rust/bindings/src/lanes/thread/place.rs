//! One function's threads and work in the thread lane. The rules are the lane's (`thread`); all fields are written under its lock.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;

use guerdon_core::frame::Frame;

use crate::lanes::thread::chunk::{Held, Spent};

/// Mean run time from which a function gets all its threads (T-2).
const LONG_NS: u64 = 100_000;

/// Whether a function is ready for calls (T-3).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Setup {
    Needed,
    UnderWay,
    Done,
}

/// One function's threads and work.
pub struct Place {
    pub limit: usize,
    /// Chunks that may be out at a time now: 1 or `limit` (T-2).
    pub width: usize,
    /// Frames that no thread has taken yet.
    pub waiting: VecDeque<Frame>,
    /// Chunks that threads have in hand.
    pub out: usize,
    /// Threads that wait for work, those called included.
    pub idle: usize,
    /// Of these, the ones that were called and have not woken yet.
    pub called: usize,
    /// Threads on their way to ask for work: being started, or between two chunks.
    pub coming: usize,
    /// Threads that count (T-1).
    pub live: usize,
    pub left_behind: BTreeSet<u64>,
    pub setup: Setup,
    /// Chunks in hand, by thread.
    pub held: BTreeMap<u64, Arc<Held>>,
    /// Mean run time of its calls, the last chunks counting most.
    pub mean_ns: Option<u64>,
}

impl Place {
    pub const fn new(limit: usize) -> Self {
        Self {
            limit,
            width: 1,
            waiting: VecDeque::new(),
            out: 0,
            idle: 0,
            called: 0,
            coming: 0,
            live: 0,
            left_behind: BTreeSet::new(),
            setup: Setup::Needed,
            held: BTreeMap::new(),
            mean_ns: None,
        }
    }

    pub fn learn(&mut self, spent: Spent) {
        let Some(mean) = spent.run_ns.checked_div(spent.calls) else { return };
        let mean = self.mean_ns.map_or(mean, |known| known.midpoint(mean));
        self.mean_ns = Some(mean);
        let waits = spent.cpu_ns < spent.run_ns / 2 && mean > LONG_NS / 10;
        self.width = if mean >= LONG_NS || waits { self.limit } else { 1 };
    }
}

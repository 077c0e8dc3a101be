//! Counts of calls of pure functions that need not be made.

use serde::Serialize;

use crate::sync::{AtomicU64, Ordering};

/// Counts of one function, in samples.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct CallCounts {
    /// Samples that got the outcome of an identical call.
    pub shared: u64,
    /// Samples whose outcome was kept from an earlier call.
    pub hits: u64,
    /// Samples for which no outcome was kept.
    pub misses: u64,
}

/// Written by the threads that share or find outcomes.
#[derive(Debug, Default)]
pub(super) struct CallCounters {
    shared: AtomicU64,
    hits: AtomicU64,
    misses: AtomicU64,
}

impl CallCounters {
    pub(super) fn count_shared(&self) {
        self.shared.fetch_add(1, Ordering::Relaxed);
    }

    pub(super) fn count_lookups(&self, hits: u64, misses: u64) {
        self.hits.fetch_add(hits, Ordering::Relaxed);
        self.misses.fetch_add(misses, Ordering::Relaxed);
    }

    pub(super) fn read(&self) -> CallCounts {
        let read = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        CallCounts { shared: read(&self.shared), hits: read(&self.hits), misses: read(&self.misses) }
    }
}

//! When the groups of a batch are delivered, and the count of finished samples that a quorum needs.
//!
//! A sample is finished when each function has completed its cell of it (of a function with
//! `finish_group`, the score). The call that completes the last sample of a quorum is notified,
//! once a group, and can read all of its samples.

use std::ops::Range;

use crate::append_list::AppendList;
use crate::sync::{AtomicU32, Ordering};

/// Conditions for delivering a group before its last cell is complete; the first one met counts.
/// The default has no conditions.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Delivery {
    /// Number of finished samples that is enough; the calls of the others are cancelled.
    pub group_quorum: Option<usize>,
    /// Nanoseconds since the group's first sample came; calls that are open then time out.
    pub group_timeout_ns: Option<u64>,
    /// True if the submitter may cancel single groups.
    pub cancellable: bool,
}

impl Delivery {
    /// Delivers a group once `samples` samples of it are finished.
    #[must_use]
    pub const fn quorum(samples: usize) -> Self {
        Self { group_quorum: Some(samples), group_timeout_ns: None, cancellable: false }
    }

    /// Delivers a group `ns` nanoseconds after its first sample.
    #[must_use]
    pub const fn timeout_ns(ns: u64) -> Self {
        Self { group_quorum: None, group_timeout_ns: Some(ns), cancellable: false }
    }

    /// Returns whether a group can be delivered before all of its calls have ended.
    pub(crate) const fn can_be_early(self) -> bool {
        self.group_quorum.is_some() || self.group_timeout_ns.is_some() || self.cancellable
    }
}

/// Counts finished samples, group by group.
pub(crate) struct Quorum {
    wanted: usize,
    group_size: usize,
    functions: u32,
    /// Number of functions that have not completed each sample. Written by the thread that
    /// completes a cell.
    open: AppendList<AtomicU32>,
    /// Number of finished samples of each group. Written by the thread that finishes one.
    finished: AppendList<AtomicU32>,
}

impl Quorum {
    pub(crate) fn new(wanted: usize, groups: usize, group_size: usize, functions: usize) -> Self {
        let first = groups.max(1);
        let (open, finished) = (AppendList::new(first * group_size), AppendList::new(first));
        let functions = u32::try_from(functions).unwrap_or(u32::MAX);
        let quorum = Self { wanted, group_size, functions, open, finished };
        quorum.grow(groups);
        quorum
    }

    pub(crate) fn grow(&self, groups: usize) {
        self.open.grow(groups * self.group_size, || AtomicU32::new(self.functions));
        self.finished.grow(groups, || AtomicU32::new(0));
    }

    /// Records that a function has completed these samples, and returns the groups whose quorum
    /// this fills.
    pub(crate) fn completed(&self, samples: Range<usize>) -> Vec<usize> {
        let finishes =
            |sample: &usize| self.open.get(*sample).is_some_and(|open| open.fetch_sub(1, Ordering::AcqRel) == 1);
        let reached = |group: &usize| {
            let finished =
                self.finished.get(*group).map(|finished| finished.fetch_add(1, Ordering::AcqRel) as usize + 1);
            finished == Some(self.wanted)
        };
        samples.filter(finishes).map(|sample| sample / self.group_size).filter(reached).collect()
    }
}

#[cfg(all(test, not(feature = "loom")))]
mod tests {
    use super::*;

    #[test]
    fn a_quorum_is_announced_once_per_group() {
        let quorum = Quorum::new(2, 2, 3, 2);
        assert!(quorum.completed(0..6).is_empty());
        assert!(quorum.completed(1..2).is_empty());
        assert_eq!(quorum.completed(2..4), [0]);
        assert!(quorum.completed(0..1).is_empty());
        assert_eq!(quorum.completed(4..6), [1]);
    }
}

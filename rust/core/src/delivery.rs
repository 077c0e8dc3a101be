//! When a group is delivered, and the count of finished samples that a quorum needs.
//!
//! - Y-1  A sample is finished when each function has settled its cell of it; of a function with `finish_group`, the score. The call that settles the
//!   last of the quorum's samples is told so, once a group.
//! - Y-2  What was settled is counted after it can be read: who is told of a quorum sees its samples.

use std::ops::Range;

use crate::call::Cause;
use crate::segments::Segments;
use crate::sync::{AtomicU32, Ordering};

/// When a group is delivered.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Delivery {
    /// With its last cell.
    #[default]
    Whole,
    /// Once so many of its samples are finished; the calls of the others are cancelled.
    Quorum(usize),
    /// So many nanoseconds after its first sample came; calls that have not ended by then time out.
    Within(u64),
}

impl Delivery {
    /// Why a group's open calls are ended, if this ends any.
    pub(crate) const fn cause(self) -> Option<Cause> {
        match self {
            Self::Whole => None,
            Self::Quorum(_) => Some(Cause::Quorum),
            Self::Within(_) => Some(Cause::GroupDeadline),
        }
    }
}

/// Counts finished samples, group by group.
pub(crate) struct Quorum {
    wanted: usize,
    group_size: usize,
    functions: u32,
    /// Per sample, functions that have not settled it. Written by whoever settles.
    open: Segments<AtomicU32>,
    /// Per group, finished samples. Written by whoever finishes one.
    finished: Segments<AtomicU32>,
}

impl Quorum {
    pub(crate) fn new(wanted: usize, groups: usize, group_size: usize, functions: usize) -> Self {
        let first = groups.max(1);
        let (open, finished) = (Segments::new(first * group_size), Segments::new(first));
        let functions = u32::try_from(functions).unwrap_or(u32::MAX);
        let quorum = Self { wanted, group_size, functions, open, finished };
        quorum.grow(groups);
        quorum
    }

    pub(crate) fn grow(&self, groups: usize) {
        self.open.grow(groups * self.group_size, || AtomicU32::new(self.functions));
        self.finished.grow(groups, || AtomicU32::new(0));
    }

    /// A function has settled its cells of these samples: the groups of which this finished the last sample that the quorum wants (Y-1).
    pub(crate) fn settled(&self, samples: Range<usize>) -> Vec<usize> {
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
    fn y1_a_quorum_is_told_once_a_group() {
        let quorum = Quorum::new(2, 2, 3, 2);
        assert!(quorum.settled(0..6).is_empty());
        assert!(quorum.settled(1..2).is_empty());
        assert_eq!(quorum.settled(2..4), [0]);
        assert!(quorum.settled(0..1).is_empty());
        assert_eq!(quorum.settled(4..6), [1]);
    }
}

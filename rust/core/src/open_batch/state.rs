//! Taken places of an open batch, and the progress of its groups.

use std::sync::Arc;

use super::placement::AddError;
use crate::wake::Wake;

/// Largest distance between a sample's place and all others: a wrong index must not allocate all
/// memory.
pub(super) const MOST_AHEAD: usize = 1 << 20;

#[derive(Clone, Copy, Default)]
pub(super) struct OpenGroup {
    /// Places that are taken, and how many of their samples have values.
    pub(super) have: usize,
    pub(super) arrived: usize,
    pub(super) complete: bool,
    /// True if the group was delivered early, so that it needs no more samples.
    pub(super) excused: bool,
}

pub(super) struct OpenBatchState {
    /// The time when each place was taken; 0 if it is free. Places behind the last are free too.
    pub(super) since_ns: Vec<u64>,
    pub(super) groups: Vec<OpenGroup>,
    /// The lowest place that may be free: all places before it are taken.
    pub(super) lowest: usize,
    /// The time when additions ended, and why no more samples are taken.
    pub(super) ended: Option<(u64, String)>,
    /// Complete groups that `take_completed` has not returned yet.
    pub(super) completed: Vec<usize>,
    /// Samples in full groups that are not complete.
    pub(super) pending: usize,
    /// Readable while fewer are pending than allowed. Present until `forget_room`.
    pub(super) room: Option<Arc<Wake>>,
}

impl OpenBatchState {
    fn is_free(&self, sample: usize) -> bool {
        self.since_ns.get(sample).is_none_or(|since| *since == 0)
    }

    pub(super) fn free_from(&self, first: usize) -> impl Iterator<Item = usize> {
        (first..).filter(|sample| self.is_free(*sample))
    }

    pub(super) fn in_group(&self, group: usize, wanted: usize, size: usize) -> Result<Vec<usize>, AddError> {
        if group >= self.groups.len() + MOST_AHEAD.div_ceil(size) {
            return Err(AddError::TooFar { sample: group.saturating_mul(size), samples: self.since_ns.len() });
        }
        let places = group * size..(group + 1) * size;
        let free: Vec<usize> = places.filter(|sample| self.is_free(*sample)).collect();
        if free.len() < wanted {
            return Err(AddError::NoRoom { group, free: free.len(), wanted, size });
        }
        Ok(free[..wanted].to_vec())
    }

    pub(super) fn exact(&self, samples: &[usize]) -> Result<Vec<usize>, AddError> {
        let mut sorted = samples.to_vec();
        sorted.sort_unstable();
        let twice = sorted.windows(2).find(|pair| pair[0] == pair[1]).map(|pair| pair[0]);
        match twice.or_else(|| samples.iter().copied().find(|sample| !self.is_free(*sample))) {
            Some(sample) => Err(AddError::Taken(sample)),
            None => Ok(samples.to_vec()),
        }
    }

    pub(super) fn raise_lowest(&mut self) {
        while !self.is_free(self.lowest) {
            self.lowest += 1;
        }
    }
}

//! Where the samples of an addition go, and why they may not.

use thiserror::Error;

use super::State;

/// How far beyond all others a sample may be placed: a slip must not ask for all memory.
pub(super) const MOST_AHEAD: usize = 1 << 20;

/// Where the samples of an addition go.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Placement {
    /// So many samples, to the lowest places that are free.
    InOrder(usize),
    /// So many samples, to the lowest places of this group that are free.
    OfGroup(usize, usize),
    /// These indexes.
    Exact(Vec<usize>),
}

/// Why an addition was refused.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum AddError {
    #[error("it takes no more samples: {0}")]
    Ended(String),
    #[error("group {group} has room for {free} of the {wanted} samples (num_generations={size})")]
    NoRoom { group: usize, free: usize, wanted: usize, size: usize },
    #[error("there is a sample {0} already")]
    Taken(usize),
    #[error("sample {sample} is far beyond the {samples} samples that there are")]
    TooFar { sample: usize, samples: usize },
}

/// Groups that lack samples.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("{groups} groups lack samples: {}", listed(.first, *.groups, *.size))]
pub struct IncompleteGroups {
    /// How many each needs.
    pub size: usize,
    pub groups: usize,
    /// The first of them, and how many samples each has.
    pub first: Vec<(usize, usize)>,
}

fn listed(first: &[(usize, usize)], groups: usize, size: usize) -> String {
    let each = first.iter().map(|(group, have)| format!("group {group} has {have} of {size}"));
    let mut text = each.collect::<Vec<_>>().join(", ");
    if groups > first.len() {
        text.push_str(", …");
    }
    text
}

/// What an addition took.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Added {
    /// The places, in the order of the samples.
    pub samples: Vec<usize>,
    /// Groups that it began.
    pub(crate) begun: Vec<usize>,
    pub(crate) at_ns: u64,
}

impl State {
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

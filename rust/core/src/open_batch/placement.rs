//! Places for the samples of an addition, or the reason why they can't be taken.

use thiserror::Error;

/// Places for an addition's samples.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Placement {
    /// This many samples, to the lowest free places.
    InOrder(usize),
    /// This many samples, to the lowest free places of this group.
    OfGroup(usize, usize),
    /// These indexes.
    Exact(Vec<usize>),
}

/// Why an addition was refused.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum AddError {
    #[error("this batch takes no more samples: {0}")]
    Ended(String),
    #[error("group {group} has room for {free} of the {wanted} samples (num_generations={size})")]
    NoRoom { group: usize, free: usize, wanted: usize, size: usize },
    #[error("sample {0} was already added")]
    Taken(usize),
    #[error("sample {sample} is far beyond the {samples} samples added so far")]
    TooFar { sample: usize, samples: usize },
}

/// Groups that lack samples.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("{groups} group{} samples: {}", if *.groups == 1 { " lacks" } else { "s lack" }, listed(.first, *.groups, *.size))]
pub struct IncompleteGroups {
    /// Number of samples that each group needs.
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

/// Samples that an addition took.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct AddedSamples {
    /// The places, in the order of the samples.
    pub samples: Vec<usize>,
    /// Groups whose first sample came with this addition.
    pub(crate) begun: Vec<usize>,
    pub(crate) at_ns: u64,
}

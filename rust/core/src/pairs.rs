//! Calls that compare two samples of a group: which two, and their values.

use std::any::Any;
use std::sync::Arc;

use crate::function::FunctionId;
use crate::payload::{Payload, SharedPayload};
use guerdon_wire::sent_constants::SentConstants;
use guerdon_wire::text::RawText;

/// Pairs of samples with the same distance in their group, whose last sample is before its first.
#[derive(Clone, Debug)]
pub(crate) struct Pairs {
    /// Columns whose values are the second sample's.
    pub second_columns: Arc<[usize]>,
    pub group_size: usize,
    pub distance: usize,
}

impl Pairs {
    /// The values of calls on pairs.
    pub(crate) fn of(&self, samples: &SharedPayload) -> SharedPayload {
        samples.shown_as(|samples| PairedPayload { samples, pairs: self.clone() })
    }

    /// Tokens of both samples.
    pub(crate) fn tokens(&self, samples: &dyn Payload, function: FunctionId, first: u32) -> Option<f64> {
        Some(samples.tokens(function, first)? + samples.tokens(function, self.second(first))?)
    }

    /// The second sample of the pair that begins with this one.
    #[expect(clippy::cast_possible_truncation, reason = "it is of the same group")]
    fn second(&self, sample: u32) -> u32 {
        let place = sample as usize % self.group_size;
        let second = (place + self.distance) % self.group_size;
        (sample as usize - place + second) as u32
    }
}

/// The values of pairs, each called by its first sample.
struct PairedPayload {
    samples: SharedPayload,
    pairs: Pairs,
}

impl Payload for PairedPayload {
    fn names(&self, function: FunctionId, finish: bool) -> Option<&[String]> {
        self.samples.names(function, finish)
    }

    fn encode(&self, function: FunctionId, _: bool, samples: &[u32], sent: &mut SentConstants, out: &mut Vec<u8>) {
        let pairs: Vec<(u32, u32)> = samples.iter().map(|first| (*first, self.pairs.second(*first))).collect();
        self.samples.encode_pairs(function, &pairs, &self.pairs.second_columns, sent, out);
    }

    fn modules(&self, function: FunctionId, finish: bool, each: &mut dyn FnMut(&str)) {
        self.samples.modules(function, finish, each);
    }

    fn bytes(&self, function: FunctionId, sample: u32) -> usize {
        self.samples.bytes(function, sample) + self.samples.bytes(function, self.pairs.second(sample))
    }

    fn text(&self, function: FunctionId, column: usize, sample: u32) -> Option<RawText<'_>> {
        let is_second = self.pairs.second_columns.contains(&column);
        self.samples.text(function, column, if is_second { self.pairs.second(sample) } else { sample })
    }

    fn tokens(&self, function: FunctionId, sample: u32) -> Option<f64> {
        self.pairs.tokens(&*self.samples, function, sample)
    }

    fn hold(&self, function: FunctionId, finish: bool, samples: &[u32]) -> Option<Box<dyn Payload>> {
        let mut both: Vec<u32> = samples.iter().flat_map(|first| [*first, self.pairs.second(*first)]).collect();
        both.sort_unstable();
        both.dedup();
        let samples = self.samples.part(function, finish, &both)?;
        Some(Box::new(Self { samples, pairs: self.pairs.clone() }))
    }

    fn as_any(&self) -> &dyn Any {
        self
    }
}

//! Data of complete groups for observers, beside their cells.
//!
//! Each of these functions takes a lock of the batch, so call them once for many samples.

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::Arc;

use crate::batch::{Batch, Record};
use crate::function::FunctionId;
use crate::outcome::Note;
use crate::report::{NamedExtra, Usage};

impl Batch {
    /// Returns the notes of the failed cells of these samples.
    #[must_use]
    pub fn notes_in(&self, samples: Range<usize>) -> BTreeMap<(usize, FunctionId), Arc<Note>> {
        let notes = self.notes.lock();
        notes.range((samples.start, 0)..(samples.end, 0)).map(|(cell, note)| (*cell, note.clone())).collect()
    }

    /// Returns the records of a function's calls on these samples, including calls that also cover
    /// other samples.
    #[must_use]
    pub fn records_in(&self, function: FunctionId, samples: &Range<usize>) -> Vec<Record> {
        let covers = self.functions[function].span(self.samples(), self.group_size).max(1);
        self.records.lock()[function].on(samples, covers)
    }

    /// Returns the named values that a function reported for these samples, in sample order; the
    /// last value of a name counts.
    #[must_use]
    pub fn extra_in(&self, function: FunctionId, samples: &Range<usize>) -> Vec<(usize, NamedExtra)> {
        let reported = self.reported.lock();
        let by_sample = reported.get(&function).into_iter().flat_map(|reported| reported.extra.range(samples.clone()));
        by_sample.flat_map(|(sample, all)| all.iter().map(|extra| (*sample, extra.clone()))).collect()
    }

    /// Returns the usage of the calls on each of these samples, if the batch keeps it by sample.
    #[must_use]
    pub fn usage_in(&self, function: FunctionId, samples: Range<usize>) -> BTreeMap<usize, Usage> {
        let reported = self.reported.lock();
        let Some(reported) = reported.get(&function) else { return BTreeMap::new() };
        reported.usage_by_sample.range(samples).map(|(sample, usage)| (*sample, *usage)).collect()
    }

    /// Adds to the usage of one sample's call, if the batch keeps usage by sample.
    pub(crate) fn count_usage_of(&self, function: FunctionId, sample: usize, usage: Usage) {
        let (batch, function) = self.counted_for(function);
        let mut reported = batch.reported.lock();
        *reported.entry(function).or_default().usage_by_sample.entry(sample).or_default() += usage;
    }
}

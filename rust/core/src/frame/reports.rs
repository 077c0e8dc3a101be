//! Reports of a frame's calls beside their cells.

use crate::frame::Frame;
use crate::report::{NamedExtra, Report, Usage};

/// Named values of one call, each with the index of its sample in the call.
pub(super) type CallExtra = Vec<(usize, NamedExtra)>;

impl Frame {
    /// Takes the report of an attempt, before the call is ended. Usage is counted now; extra values
    /// are kept when the call ends, if it is still open.
    pub fn report(&mut self, call: usize, report: Report) {
        let Report { usage, extra, incomplete } = report;
        if usage != Usage::default() {
            let (_, seen) = self.batch().counted_for(self.function);
            self.owner.count_usage(seen, usage);
            self.share(usage).for_each(|(slice, part)| self.slices[slice].batch().count_usage(self.function, part));
            if self.slices.iter().any(|slice| slice.batch().keeps_usage_by_sample()) {
                self.keep_usage(call, usage);
            }
        }
        if !extra.is_empty() {
            let reported = self.extra.entry(call).or_default();
            if reported.is_empty() {
                *reported = extra;
            } else {
                reported.extend(extra);
            }
        }
        if incomplete && let Some((slice, call)) = self.each().nth(call) {
            slice.batch().note_incomplete(call.first, self.function);
        }
    }

    /// Divides the usage of a call among its batches by their samples: a request of gathered
    /// samples may serve several batches.
    fn share(&self, usage: Usage) -> impl Iterator<Item = (usize, Usage)> {
        let all = self.slices.iter().map(|slice| slice.calls.len()).sum::<usize>().max(1) as u64;
        let mut start = 0;
        self.slices.iter().enumerate().map(move |(number, slice)| {
            let last = number + 1 == self.slices.len();
            let end = if last { all } else { start + slice.calls.len() as u64 };
            (number, usage.between(std::mem::replace(&mut start, end), end, all))
        })
    }

    /// Keeps usage by sample: each sample of the call gets an equal part.
    fn keep_usage(&self, call: usize, usage: Usage) {
        let samples: Vec<(usize, usize)> = self.samples_by_slice(call).collect();
        let all = samples.len().max(1) as u64;
        for ((slice, sample), number) in samples.into_iter().zip(0..) {
            let part = usage.between(number, number + 1, all);
            self.slices[slice].batch().count_usage_of(self.function, sample, part);
        }
    }

    /// Keeps the values that a call on samples of one batch reported, before the samples are
    /// completed.
    pub(super) fn keep_extra(&self, first: usize, extra: Option<CallExtra>) {
        if let Some(extra) = extra {
            let of_batch = extra.into_iter().map(|(sample, named)| (first + sample, named));
            self.batch().keep_extra(self.function, of_batch);
        }
    }

    /// Keeps the values that a call on gathered samples reported, for the samples that `counts`
    /// accepts.
    pub(super) fn keep_gathered_extra(&self, extra: Option<CallExtra>, counts: impl Fn(usize) -> bool) {
        let Some(extra) = extra else { return };
        let places: Vec<_> = self.each().map(|(slice, call)| (slice.batch(), call.first)).collect();
        for (sample, named) in extra {
            if let Some((batch, first)) = places.get(sample).filter(|_| counts(sample)) {
                batch.keep_extra(self.function, std::iter::once((*first, named)));
            }
        }
    }
}

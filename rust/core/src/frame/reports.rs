//! Reports of a frame's calls beside their cells.

use crate::frame::Frame;
use crate::report::{NamedExtra, Report, Usage};

/// Named values of one call, each with the index of its sample in the call.
pub(super) type CallExtra = Vec<(usize, NamedExtra)>;

impl Frame {
    /// Takes what an attempt of a call reports, before the call is ended. Usage is counted now, its
    /// extra values are kept when the call ends and still counts.
    pub fn report(&mut self, call: usize, report: Report) {
        let Report { usage, extra, incomplete } = report;
        if usage != Usage::default() {
            self.owner.count_usage(self.function, usage);
            self.share(usage).for_each(|(slice, part)| self.slices[slice].batch().count_usage(self.function, part));
            if self.slices.iter().any(|slice| slice.batch().keeps_usage_by_sample()) {
                self.keep_usage(call, usage);
            }
        }
        if !extra.is_empty() {
            self.extra.entry(call).or_default().extend(extra);
        }
        if incomplete && let Some((slice, call)) = self.each().nth(call) {
            slice.batch().note_incomplete(call.first, self.function);
        }
    }

    /// Each batch's part of what a call used, by its samples: a request of gathered samples may
    /// serve several batches.
    fn share(&self, usage: Usage) -> impl Iterator<Item = (usize, Usage)> {
        let all = self.slices.iter().map(|slice| slice.calls.len()).sum::<usize>().max(1) as u64;
        let mut start = 0;
        self.slices.iter().enumerate().map(move |(number, slice)| {
            let last = number + 1 == self.slices.len();
            let end = if last { all } else { start + slice.calls.len() as u64 };
            (number, usage.between(std::mem::replace(&mut start, end), end, all))
        })
    }

    /// Keeps what a call used by sample: each of them used as much as the others.
    fn keep_usage(&self, call: usize, usage: Usage) {
        let samples: Vec<(usize, usize)> = self.samples_by_slice(call).collect();
        let all = samples.len().max(1) as u64;
        for ((slice, sample), number) in samples.into_iter().zip(0..) {
            let part = usage.between(number, number + 1, all);
            self.slices[slice].batch().count_usage_of(self.function, sample, part);
        }
    }

    /// Keeps what a call on samples of one batch reported, before they are completed.
    pub(super) fn keep_extra(&self, first: usize, extra: Option<CallExtra>) {
        if let Some(extra) = extra {
            let of_batch = extra.into_iter().map(|(sample, named)| (first + sample, named));
            self.batch().keep_extra(self.function, of_batch);
        }
    }

    /// Keeps what a call on gathered samples reported, of those that it still `counts` for.
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

//! The cells of a batch, with their notes.

use std::ops::Range;
use std::sync::Arc;

use crate::batch::{Batch, CellView, Record};
use crate::call::{CallKind, Cause};
use crate::function::{FunctionId, OnFailure};
use crate::grid::Grid;
use crate::outcome::{Note, Status, Times};
use crate::report::{NamedExtra, Usage};
use crate::sync::Ordering;

impl Batch {
    /// The grid with the cells of the result.
    #[must_use]
    pub const fn grid(&self) -> &Grid {
        &self.grid
    }

    pub(crate) fn stage(&self, function: FunctionId) -> Option<&Grid> {
        self.stages[function].as_ref()
    }

    /// Number of cells that the calls wrote, including scores that `finish_group` shapes.
    pub(crate) fn filled_cells(&self) -> u64 {
        let grids = self.stages.iter().flatten().chain([&self.grid]);
        grids.map(|grid| grid.filled(self.groups())).sum()
    }

    /// Returns the grid of a function's calls, and their column in it: the stage for scores that
    /// `finish_group` shapes, otherwise the grid of the result.
    pub(crate) fn place(&self, function: FunctionId, finish: bool) -> (&Grid, FunctionId) {
        match self.stage(function) {
            Some(stage) if !finish => (stage, 0),
            _ => (&self.grid, function),
        }
    }

    /// The samples of the call that begins with `first`.
    pub(crate) fn covered(&self, kind: CallKind, first: usize) -> Range<usize> {
        let span = match kind {
            CallKind::Sample | CallKind::Gathered => 1,
            CallKind::Group | CallKind::Finish => self.group_size(),
            CallKind::Batch => self.samples(),
        };
        first..first + span
    }

    pub(crate) fn note(&self, sample: usize, function: FunctionId, note: Arc<Note>) {
        self.notes.lock().insert((sample, function), note);
    }

    /// Records why a score failed whose group's `finish_group` call is still open, unless a sweep
    /// has completed the cell meanwhile.
    pub(crate) fn note_score(&self, sample: usize, function: FunctionId, note: Arc<Note>) {
        self.notes.lock().entry((sample, function)).or_insert(note);
    }

    pub(crate) fn record(&self, function: FunctionId, record: Record) {
        self.records.lock()[function].push(record);
    }

    /// Takes the record of the call that begins with this sample.
    pub(crate) fn take_record(&self, function: FunctionId, first: usize) -> Option<Vec<u8>> {
        self.records.lock()[function].take(first)
    }

    pub(crate) fn count_usage(&self, function: FunctionId, usage: Usage) {
        let (batch, function) = self.counted_for(function);
        batch.reported.lock().entry(function).or_default().usage += usage;
    }

    pub(crate) fn keep_extra(&self, function: FunctionId, extra: impl Iterator<Item = (usize, NamedExtra)>) {
        let mut reported = self.reported.lock();
        let of_function = reported.entry(function).or_default();
        for (sample, extra) in extra {
            of_function.extra.entry(sample).or_default().push(extra);
        }
    }

    /// Records that a part of a sample's call has failed, though the call may succeed.
    pub(crate) fn note_incomplete(&self, sample: usize, function: FunctionId) {
        self.reported.lock().entry(function).or_default().incomplete.insert(sample);
    }

    pub(crate) fn is_incomplete(&self, sample: usize, function: FunctionId) -> bool {
        self.reported.lock().get(&function).is_some_and(|reported| reported.incomplete.contains(&sample))
    }

    /// Returns the usage of a function's calls, `None` if no call reported any.
    #[must_use]
    pub fn usage_of(&self, function: FunctionId) -> Option<Usage> {
        let reported = self.reported.lock().get(&function).map(|reported| reported.usage);
        reported.filter(|usage| *usage != Usage::default())
    }

    /// The named values of samples that a function reported, in sample order; of one name the last
    /// one counts.
    #[must_use]
    pub fn extra_of(&self, function: FunctionId) -> Vec<(usize, NamedExtra)> {
        let reported = self.reported.lock();
        let by_sample = reported.get(&function).into_iter().flat_map(|reported| &reported.extra);
        by_sample.flat_map(|(sample, all)| all.iter().map(|extra| (*sample, extra.clone()))).collect()
    }

    /// Records the times of a call on gathered samples, once, at its end.
    pub(crate) fn count_gathered(&self, function: FunctionId, times: Times) {
        if times.started_ns != 0 {
            self.gathered.lock()[function].push(times);
        }
    }

    /// The times of the calls of a function that gathers.
    pub(crate) fn gathered_of(&self, function: FunctionId) -> Vec<Times> {
        self.gathered.lock()[function].clone()
    }

    /// Counts one more attempt of a function, of a call or of one of its requests. `deferred` means
    /// that the former attempt was throttled.
    pub fn count_retry(&self, function: FunctionId, deferred: bool) {
        let (batch, function) = self.counted_for(function);
        let counts = if deferred { &batch.deferrals } else { &batch.retries };
        counts[function].fetch_add(1, Ordering::Relaxed);
    }

    /// Counts an attempt that failed because of an open circuit breaker.
    pub fn count_excused(&self, function: FunctionId) {
        let (batch, function) = self.counted_for(function);
        batch.excused[function].fetch_add(1, Ordering::Relaxed);
    }

    /// Returns a completed cell, before `on_failure` is applied.
    #[must_use]
    pub fn cell(&self, sample: usize, function: FunctionId) -> Option<CellView> {
        let (outcome, attempts) = self.grid.read(sample, function)?;
        let attempts = match self.stage(function).and_then(|stage| stage.read(sample, 0)) {
            Some((_, of_the_score)) => of_the_score,
            None => attempts,
        };
        Some(CellView { outcome, attempts })
    }

    /// Returns the score and status of a completed cell in the result: its function's `on_failure`
    /// applied. NaN and `Cancelled` where nothing is completed.
    #[must_use]
    pub fn shown(&self, sample: usize, function: FunctionId) -> (f32, Status) {
        let Some((outcome, _)) = self.grid.read(sample, function) else {
            return (f32::NAN, Status::Cancelled);
        };
        if outcome.status == Status::Skipped {
            let run_if = self.functions[function].run_if.as_ref();
            return (run_if.map_or(f32::NAN, |run_if| run_if.otherwise), outcome.status);
        }
        if !outcome.status.is_failure() {
            #[expect(clippy::cast_possible_truncation, reason = "values beyond float32 never get into the grid")]
            return (outcome.value as f32, outcome.status);
        }
        if outcome.status == Status::Cancelled
            && self.delivered_early.lock().get(&(sample / self.group_size)) == Some(&Cause::GroupQuorum)
        {
            // An answer is not a failure, so `on_failure` does not apply.
            return (f32::NAN, outcome.status);
        }
        match self.functions[function].policy.on_failure {
            OnFailure::Nan => (f32::NAN, outcome.status),
            OnFailure::Abstain => (f32::NAN, Status::Abstained),
            OnFailure::Value(value) => (value, outcome.status),
        }
    }

    /// Returns whether a cell has a note.
    pub(crate) fn has_note(&self, sample: usize, function: FunctionId) -> bool {
        self.notes.lock().contains_key(&(sample, function))
    }

    /// Returns the note of a failed cell.
    #[must_use]
    pub fn note_of(&self, sample: usize, function: FunctionId) -> Option<Note> {
        self.notes.lock().get(&(sample, function)).map(|note| Note::clone(note))
    }

    /// Returns the failed cells and their notes, in order, before `on_failure` is applied. The
    /// search goes through the notes, since most batches have few.
    #[must_use]
    pub fn failed(&self) -> Vec<(usize, FunctionId, CellView, Note)> {
        let notes = self.notes.lock().clone();
        let of = |((sample, function), note)| {
            Some((sample, function, self.cell(sample, function)?, Arc::unwrap_or_clone(note)))
        };
        notes.into_iter().filter_map(of).filter(|(_, _, cell, _)| cell.outcome.status.is_failure()).collect()
    }

    /// Returns the record of one sample's call.
    pub(crate) fn record_of(&self, sample: usize, function: FunctionId) -> Option<Vec<u8>> {
        self.records.lock()[function].of(sample).map(<[u8]>::to_vec)
    }

    /// The named values that the call of one sample reported.
    pub(crate) fn extra_at(&self, sample: usize, function: FunctionId) -> Vec<NamedExtra> {
        let reported = self.reported.lock();
        reported.get(&function).and_then(|reported| reported.extra.get(&sample)).cloned().unwrap_or_default()
    }

    /// Removes a named value that the call of one sample reported.
    pub(crate) fn remove_extra(&self, sample: usize, function: FunctionId, name: &str) {
        let mut reported = self.reported.lock();
        let extra = reported.get_mut(&function).and_then(|reported| reported.extra.get_mut(&sample));
        let removed: Vec<_> =
            extra.into_iter().flat_map(|extra| extra.extract_if(.., |(one, _)| &**one == name)).collect();
        drop(reported);
        drop(removed); // an answer may be long
    }

    pub(crate) fn count_shared(&self, function: FunctionId) {
        self.shared[function].fetch_add(1, Ordering::Relaxed);
    }

    /// Samples that got their outcome from an identical call.
    #[must_use]
    pub fn shared_of(&self, function: FunctionId) -> u32 {
        self.shared[function].load(Ordering::Relaxed)
    }

    pub(crate) fn count_cached(&self, function: FunctionId) {
        self.cached[function].fetch_add(1, Ordering::Relaxed);
    }

    /// Samples whose outcome was kept from an earlier call.
    #[must_use]
    pub fn cached_of(&self, function: FunctionId) -> u32 {
        self.cached[function].load(Ordering::Relaxed)
    }

    /// Returns whether a call on several samples recorded something for this one, so that the
    /// sample of the record is ambiguous.
    pub(crate) fn is_recorded_with_others(&self, sample: usize, function: FunctionId) -> bool {
        self.records.lock()[function].is_of_several(sample)
    }

    /// Returns the records of a function, in sample order.
    #[must_use]
    pub fn records_of(&self, function: FunctionId) -> Vec<Record> {
        self.records.lock()[function].all()
    }

    /// Attempts of this function beyond the first ones, as far as `retries` counts them.
    #[must_use]
    pub fn retries_of(&self, function: FunctionId) -> u32 {
        self.retries[function].load(Ordering::Relaxed).saturating_sub(self.excused_of(function))
    }

    /// Attempts of a function that were throttled and deferred.
    #[must_use]
    pub fn deferrals_of(&self, function: FunctionId) -> u32 {
        self.deferrals[function].load(Ordering::Relaxed)
    }

    /// Attempts of a function that failed while its circuit breaker was open, and that `retries`
    /// does not count.
    #[must_use]
    pub fn excused_of(&self, function: FunctionId) -> u32 {
        self.excused[function].load(Ordering::Relaxed)
    }
}

//! A batch: its grid, what is said about its cells, and the news of its groups.
//!
//! - B-1  Each completed group is handed out once, in order of completion, whoever asks and from whatever thread.
//! - B-2  `news` is readable exactly while a completed group waits to be handed out, or all have been; `end` from the last outcome on.
//!   A batch that still grows has never handed out all.
//! - B-3  Notes and records of a cell are written before the cell is settled: who sees the outcome can read them.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::io;
use std::ops::Range;
use std::os::fd::BorrowedFd;
use std::sync::Arc;

use crate::clock::Clock;
use crate::delivery::{Delivery, Quorum};
use crate::function::{Function, FunctionId, OnFailure, Shape};
use crate::grid::Grid;
use crate::growth::{Added, Growth, Incomplete, Places, Refusal};
use crate::outcome::{Note, Outcome, Status};
use crate::payload::Payload;
use crate::scheduler::Cause;
use crate::sync::{AtomicU32, AtomicU64, Mutex, Ordering};
use crate::wake::Wake;

/// What is submitted.
pub struct BatchSpec {
    pub samples: usize,
    /// Samples of one prompt; divides `samples`.
    pub group_size: usize,
    pub payload: Box<dyn Payload>,
    /// Nanoseconds for the whole batch.
    pub budget_ns: Option<u64>,
    /// Whether samples are added later, until `Scheduler::finish`; such a batch begins empty.
    pub grows: bool,
    /// Of a batch that grows: how many samples of full groups that are not complete leave no room for more.
    pub max_pending: Option<usize>,
    pub delivery: Delivery,
}

impl BatchSpec {
    /// A batch that is submitted whole and delivered as its cells come, without a budget.
    #[must_use]
    pub fn whole(samples: usize, group_size: usize, payload: Box<dyn Payload>) -> Self {
        let (budget_ns, grows, max_pending, delivery) = (None, false, None, Delivery::Whole);
        Self { samples, group_size, payload, budget_ns, grows, max_pending, delivery }
    }
}

/// What one call recorded (`log_extra`, `log_metric`, the fields of a dict), opaque to the core.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Record {
    /// First sample of the call.
    pub first: usize,
    pub json: Vec<u8>,
}

/// One cell of a finished group, with the function's `on_failure` not applied.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct CellView {
    pub outcome: Outcome,
    pub attempts: u16,
}

/// Groups that are complete and not handed out yet.
struct Ready {
    groups: VecDeque<usize>,
    handed_out: usize,
}

/// A batch in flight, or finished.
pub struct Batch {
    id: u64,
    clock: Clock,
    functions: Arc<[Function]>,
    /// Of a batch that does not grow.
    samples: usize,
    group_size: usize,
    growth: Option<Growth>,
    delivery: Delivery,
    quorum: Option<Quorum>,
    /// Groups that were cut. Written under the scheduler's lock (U-3 of `scheduler::cut`).
    cuts: Mutex<BTreeSet<usize>>,
    /// Written by `release`.
    payload: Mutex<Option<Arc<dyn Payload>>>,
    submitted_ns: u64,
    budget_ns: Option<u64>,
    grid: Grid,
    /// For functions with `finish_group`: the grid of their own scores, one column wide, that the calls fill first.
    stages: Box<[Option<Grid>]>,
    /// Of failed cells, by (sample, function). Written by frames and sweeps (B-3).
    notes: Mutex<BTreeMap<(usize, FunctionId), Note>>,
    /// Per function. Written by frames (B-3).
    records: Mutex<Box<[Vec<Record>]>>,
    /// Attempts beyond the first, per function. Written by the scheduler.
    retries: Box<[AtomicU32]>,
    /// Groups not complete yet, and one more while the batch grows. Written by `announce`, `add` and `end_growth`; the one that takes it to zero
    /// ends the batch.
    open_groups: AtomicU64,
    /// When the last outcome came, 0 before. Written by `announce`.
    finished_ns: AtomicU64,
    ready: Mutex<Ready>,
    news: Wake,
    end: Wake,
}

impl Batch {
    pub(crate) fn new(id: u64, clock: Clock, functions: Arc<[Function]>, spec: BatchSpec) -> io::Result<Self> {
        let misfit = if spec.grows {
            spec.samples > 0 || spec.group_size == 0 || functions.is_empty()
        } else {
            spec.samples > 0 && (!spec.samples.is_multiple_of(spec.group_size) || functions.is_empty())
        };
        if misfit {
            let what = format!("{} samples in groups of {}", spec.samples, spec.group_size);
            return Err(io::Error::new(io::ErrorKind::InvalidInput, format!("{what}, {} functions", functions.len())));
        }
        let groups = spec.samples / spec.group_size.max(1);
        let stage = |function: &Function| function.finish.then(|| Grid::new(groups, spec.group_size, 1));
        let submitted_ns = clock.now_ns();
        // What sees a group, or all of the batch, needs all of it.
        let whole = functions.iter().any(|function| function.finish || function.shape != Shape::Sample);
        let quorum = match spec.delivery {
            Delivery::Quorum(wanted) => {
                let counts = functions.len() + usize::from(spec.grows && whole);
                Some((wanted, Quorum::new(wanted, groups, spec.group_size, counts)))
            }
            Delivery::Whole | Delivery::Within(_) => None,
        };
        let needed = quorum.as_ref().filter(|_| !whole).map_or(spec.group_size, |(wanted, _)| *wanted);
        let quorum = quorum.map(|(_, quorum)| quorum);
        let growth = if spec.grows { Some(Growth::new(spec.group_size, needed, spec.max_pending)?) } else { None };
        let batch = Self {
            id,
            clock,
            samples: spec.samples,
            group_size: spec.group_size,
            growth,
            delivery: spec.delivery,
            quorum,
            cuts: Mutex::default(),
            payload: Mutex::new(Some(spec.payload.into())),
            submitted_ns,
            budget_ns: spec.budget_ns,
            grid: Grid::new(groups, spec.group_size, functions.len()),
            stages: functions.iter().map(stage).collect(),
            notes: Mutex::default(),
            records: Mutex::new(functions.iter().map(|_| Vec::new()).collect()),
            retries: functions.iter().map(|_| AtomicU32::new(0)).collect(),
            open_groups: AtomicU64::new(groups as u64 + u64::from(spec.grows)),
            finished_ns: AtomicU64::new(0),
            ready: Mutex::new(Ready { groups: VecDeque::new(), handed_out: 0 }),
            news: Wake::new()?,
            end: Wake::new()?,
            functions,
        };
        if groups == 0 && !spec.grows {
            batch.finish();
        }
        Ok(batch)
    }

    #[must_use]
    pub const fn id(&self) -> u64 {
        self.id
    }

    /// Places of all its groups; of a batch that grows, so far.
    #[must_use]
    pub fn samples(&self) -> usize {
        self.growth.as_ref().map_or(self.samples, |growth| growth.groups() * self.group_size)
    }

    #[must_use]
    pub const fn group_size(&self) -> usize {
        self.group_size
    }

    #[must_use]
    pub fn groups(&self) -> usize {
        match &self.growth {
            Some(growth) => growth.groups(),
            None => self.samples.checked_div(self.group_size).unwrap_or(0),
        }
    }

    /// Whether its samples come one by one, or came so.
    #[must_use]
    pub const fn grows(&self) -> bool {
        self.growth.is_some()
    }

    /// Whether samples can still be added.
    #[must_use]
    pub fn is_open(&self) -> bool {
        self.growth.as_ref().is_some_and(|growth| !growth.is_ended())
    }

    /// Takes places for samples. Their calls can be made once `Scheduler::add` was told.
    pub fn reserve(&self, places: &Places) -> Result<Added, Refusal> {
        let Some(growth) = &self.growth else {
            return Err(Refusal::Ended("it was submitted whole".to_owned()));
        };
        growth.add(places, self.clock.now_ns(), |groups| {
            self.grid.grow(groups);
            for stage in self.stages.iter().flatten() {
                stage.grow(groups);
            }
            if let Some(quorum) = &self.quorum {
                quorum.grow(groups);
            }
            self.open_groups.fetch_add((groups - growth.groups()) as u64, Ordering::Relaxed);
        })
    }

    /// Learns that samples which took places have their values; the groups that this makes whole.
    pub(crate) fn arrive(&self, samples: &[usize]) -> Vec<usize> {
        self.growth.as_ref().map_or_else(Vec::new, |growth| growth.arrive(samples))
    }

    /// Whether all samples of a group are there.
    pub(crate) fn is_whole(&self, group: usize) -> bool {
        self.growth.as_ref().is_none_or(|growth| growth.is_whole(group))
    }

    /// Whether a quorum counts that a group became whole.
    pub(crate) fn counts_whole(&self) -> bool {
        self.quorum.is_some()
            && self.functions.iter().any(|function| function.finish || function.shape != Shape::Sample)
    }

    /// Whether samples can be added without waiting, as `max_pending` says.
    #[must_use]
    pub fn has_room(&self) -> bool {
        self.growth.as_ref().is_none_or(Growth::has_room)
    }

    /// Readable while `has_room`; `None` where there is always room.
    pub fn room_fd(&self) -> Option<BorrowedFd<'_>> {
        self.growth.as_ref()?.room_fd()
    }

    #[must_use]
    pub const fn delivery(&self) -> Delivery {
        self.delivery
    }

    /// Notes that a group is delivered before all of its calls have ended; false if that was noted before.
    pub(crate) fn mark_cut(&self, group: usize) -> bool {
        let first = self.cuts.lock().insert(group);
        if let Some(growth) = self.growth.as_ref().filter(|_| first) {
            growth.excuse(group);
        }
        first
    }

    pub(crate) fn is_cut(&self, group: usize) -> bool {
        self.delivery != Delivery::Whole && self.cuts.lock().contains(&group)
    }

    /// Why the call of this function that begins at this sample is to end with the cut of its group, if that was cut.
    pub(crate) fn cut_of(&self, first: usize, function: FunctionId, finish: bool) -> Option<Cause> {
        let cause = self.delivery.cause()?;
        let cuttable = match self.functions[function].shape {
            Shape::Sample => true,
            Shape::Group => cause == Cause::GroupDeadline,
            Shape::Batch => false,
        };
        (cuttable && !finish && self.is_cut(first / self.group_size)).then_some(cause)
    }

    /// Counts what one function has settled; the groups whose quorum that completed.
    pub(crate) fn count_settled(&self, samples: Range<usize>) -> Vec<usize> {
        self.quorum.as_ref().map_or_else(Vec::new, |quorum| quorum.settled(samples))
    }

    /// Groups of a batch that grows that were completed since the last time: what their calls were made of is needed no more.
    #[must_use]
    pub fn take_completed(&self) -> Vec<usize> {
        self.growth.as_ref().map_or_else(Vec::new, Growth::take_completed)
    }

    /// Ends growth; true if that was the end of the batch. With `whole`, only if no group lacks samples.
    pub(crate) fn end_growth(&self, why: &str, whole: bool) -> Result<bool, Incomplete> {
        let Some(growth) = &self.growth else { return Ok(false) };
        Ok(growth.end(self.clock.now_ns(), why, whole)? && self.close_one())
    }

    /// One group less to wait for, or no more growth; true when there is nothing left.
    fn close_one(&self) -> bool {
        let last = self.open_groups.fetch_sub(1, Ordering::AcqRel) == 1;
        if last {
            self.finish();
        }
        last
    }

    #[must_use]
    pub fn functions(&self) -> &[Function] {
        &self.functions
    }

    /// What the calls are made of; `None` once it was released.
    #[must_use]
    pub fn payload(&self) -> Option<Arc<dyn Payload>> {
        self.payload.lock().clone()
    }

    /// Gives up what the calls were made of, once all of them have ended: a result that is kept shall not keep the inputs. The caller
    /// drops it, where dropping it is safe.
    pub fn release(&self) -> Option<Arc<dyn Payload>> {
        if self.is_done() { self.payload.lock().take() } else { None }
    }

    /// The clock when the batch was submitted.
    #[must_use]
    pub const fn submitted_ns(&self) -> u64 {
        self.submitted_ns
    }

    /// The clock when the call that begins at this sample could first be made: in a batch that grows, when its last sample came.
    #[must_use]
    pub fn ready_ns(&self, first: usize, function: FunctionId) -> u64 {
        let Some(growth) = &self.growth else { return self.submitted_ns };
        let since_ns = match self.functions[function].shape {
            Shape::Sample => growth.since_ns(first..first + 1),
            Shape::Group => growth.since_ns(first..first + self.group_size),
            Shape::Batch => growth.ended_ns().unwrap_or(0),
        };
        since_ns.max(self.submitted_ns)
    }

    /// The clock after which the call of this function that begins at this sample may not run any more, if there is such a bound.
    #[must_use]
    pub fn expires_ns(&self, first: usize, function: FunctionId) -> Option<u64> {
        let deadline = self.functions[function].policy.deadline.map(crate::clock::nanos);
        let deadline = deadline.map(|ns| self.ready_ns(first, function).saturating_add(ns));
        let budget = self.budget_ns.map(|ns| self.submitted_ns.saturating_add(ns));
        [deadline, budget].into_iter().flatten().min()
    }

    pub(crate) const fn budget_ns(&self) -> Option<u64> {
        self.budget_ns
    }

    /// The grid that the cells of the result stand in.
    #[must_use]
    pub const fn grid(&self) -> &Grid {
        &self.grid
    }

    pub(crate) fn stage(&self, function: FunctionId) -> Option<&Grid> {
        self.stages[function].as_ref()
    }

    pub(crate) fn note(&self, sample: usize, function: FunctionId, note: Note) {
        self.notes.lock().insert((sample, function), note);
    }

    /// Says why a score failed that its group's `finish_group` call is still to settle, unless a sweep has settled the cell meanwhile.
    pub(crate) fn note_score(&self, sample: usize, function: FunctionId, note: Note) {
        self.notes.lock().entry((sample, function)).or_insert(note);
    }

    pub(crate) fn record(&self, function: FunctionId, record: Record) {
        self.records.lock()[function].push(record);
    }

    pub(crate) fn count_retry(&self, function: FunctionId) {
        self.retries[function].fetch_add(1, Ordering::Relaxed);
    }

    /// Announces a completed group (B-1); true when it was the last.
    pub(crate) fn announce(&self, group: usize) -> bool {
        if let Some(growth) = &self.growth {
            growth.complete(group);
        }
        {
            let mut ready = self.ready.lock();
            ready.groups.push_back(group);
            if ready.groups.len() == 1 {
                // Else it is readable already (B-2), and a system call per group would cost more than a cheap function.
                self.news.notify();
            }
        }
        self.close_one()
    }

    fn finish(&self) {
        self.finished_ns.store(self.clock.now_ns(), Ordering::Release);
        self.end.notify();
        let ready = self.ready.lock();
        if ready.handed_out == self.groups() {
            self.news.notify();
        }
    }

    /// Whether every cell has its outcome.
    #[must_use]
    pub fn is_done(&self) -> bool {
        self.finished_ns.load(Ordering::Acquire) != 0
    }

    /// From submission to the last outcome, or to now.
    #[must_use]
    pub fn elapsed_ns(&self) -> u64 {
        let end = match self.finished_ns.load(Ordering::Acquire) {
            0 => self.clock.now_ns(),
            finished => finished,
        };
        end.saturating_sub(self.submitted_ns)
    }

    /// A completed group that was not handed out yet (B-1).
    #[must_use]
    pub fn take_group(&self) -> Option<usize> {
        let mut ready = self.ready.lock();
        let group = ready.groups.pop_front()?;
        ready.handed_out += 1;
        // Left readable for ever once all are handed out, so that every consumer learns of it. `finish` looks under this lock, after it said that
        // the batch is done.
        if ready.groups.is_empty() && !(self.is_done() && ready.handed_out == self.groups()) {
            self.news.drain();
        }
        Some(group)
    }

    /// Whether all groups were handed out, and no more come.
    #[must_use]
    pub fn is_exhausted(&self) -> bool {
        self.is_done() && self.ready.lock().handed_out == self.groups()
    }

    /// Readable as B-2 says.
    pub fn news_fd(&self) -> BorrowedFd<'_> {
        self.news.fd()
    }

    /// Readable as B-2 says.
    pub fn end_fd(&self) -> BorrowedFd<'_> {
        self.end.fd()
    }

    /// A settled cell as it is, before `on_failure`.
    #[must_use]
    pub fn cell(&self, sample: usize, function: FunctionId) -> Option<CellView> {
        let (outcome, attempts) = self.grid.read(sample, function)?;
        let attempts = match self.stage(function).and_then(|stage| stage.read(sample, 0)) {
            Some((_, of_the_score)) => of_the_score,
            None => attempts,
        };
        Some(CellView { outcome, attempts })
    }

    /// What a settled cell shows in the result: its function's `on_failure` applied. NaN and `Cancelled` where nothing is settled.
    #[must_use]
    pub fn shown(&self, sample: usize, function: FunctionId) -> (f32, Status) {
        let Some((outcome, _)) = self.grid.read(sample, function) else {
            return (f32::NAN, Status::Cancelled);
        };
        if !outcome.status.is_failure() {
            #[expect(clippy::cast_possible_truncation, reason = "values beyond float32 never get into the grid")]
            return (outcome.value as f32, outcome.status);
        }
        if outcome.status == Status::Cancelled && self.quorum.is_some() && self.is_cut(sample / self.group_size) {
            // The function did not fail: nothing is to be made of it.
            return (f32::NAN, outcome.status);
        }
        match self.functions[function].policy.on_failure {
            OnFailure::Nan => (f32::NAN, outcome.status),
            OnFailure::Abstain => (f32::NAN, Status::Abstained),
            OnFailure::Value(value) => (value, outcome.status),
        }
    }

    /// Why a cell failed.
    #[must_use]
    pub fn note_of(&self, sample: usize, function: FunctionId) -> Option<Note> {
        self.notes.lock().get(&(sample, function)).cloned()
    }

    /// What a function recorded, in sample order.
    #[must_use]
    pub fn records_of(&self, function: FunctionId) -> Vec<Record> {
        let mut records = self.records.lock()[function].clone();
        records.sort_by_key(|record| record.first);
        records
    }

    /// Attempts of this function beyond the first ones.
    #[must_use]
    pub fn retries_of(&self, function: FunctionId) -> u32 {
        self.retries[function].load(Ordering::Relaxed)
    }
}

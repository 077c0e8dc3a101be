//! A batch: its grid, the notes and records of its cells, and the news of its groups.
//!
//! - Each completed group is handed out once, in order of completion, to whoever asks.
//! - `news` is readable while a completed group waits to be handed out, and for ever once all have
//!   been; `end` from the last outcome on. `news` is made for the first who asks: most wait for the
//!   end alone.
//! - Notes, records and extra values of a cell are written before its outcome, so whoever sees the
//!   outcome reads them.
//! - A batch that is done lets its descriptors go once nobody waits, so a kept result holds none.

mod adding;
mod cells;
mod completion;
mod dependents;

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::io;
use std::sync::Arc;

use crate::call::Cause;
use crate::clock::Clock;
use crate::delivery::{Delivery, Quorum};
use crate::dependents::Dependents;
use crate::function::{Function, FunctionId, Shape};
use crate::grid::Grid;
use crate::open_batch::OpenBatch;
use crate::outcome::{Note, Outcome, Times};
use crate::payload::{Payload, PayloadRelease, SharedPayload};
use crate::report::{NamedExtra, Usage};
use crate::sync::{AtomicU32, AtomicU64, Mutex, Ordering};
use crate::wake::Wake;

pub(crate) use completion::Completed;

/// What is submitted.
pub struct BatchSpec {
    pub samples: usize,
    /// Samples of one prompt; divides `samples`.
    pub group_size: usize,
    pub payload: Box<dyn Payload>,
    /// Nanoseconds for the whole batch.
    pub batch_timeout_ns: Option<u64>,
    /// Whether samples are added later, until `Scheduler::finish`; such a batch begins empty.
    pub streamed: bool,
    /// Of a streamed batch: how many samples of full groups that are not complete leave no
    /// room for more.
    pub max_pending: Option<usize>,
    pub delivery: Delivery,
}

impl BatchSpec {
    /// A batch that is submitted whole and delivered as its cells come, without a timeout.
    #[must_use]
    pub fn whole(samples: usize, group_size: usize, payload: Box<dyn Payload>) -> Self {
        let (batch_timeout_ns, streamed, max_pending, delivery) = (None, false, None, Delivery::default());
        Self { samples, group_size, payload, batch_timeout_ns, streamed, max_pending, delivery }
    }
}

/// What one call recorded (`log_extra`, `log_metric`, the fields of a dict), opaque to the core.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Record {
    /// First sample of the call.
    pub first: usize,
    /// Of a call on gathered samples: all of them, in its order.
    pub gathered: Vec<usize>,
    pub json: Vec<u8>,
}

/// What the calls of one function reported.
#[derive(Clone, Debug, Default)]
struct Reported {
    usage: Usage,
    /// By sample, in the order in which attempts ended.
    extra: Vec<(usize, NamedExtra)>,
    /// Samples of whose calls a part has failed.
    incomplete: BTreeSet<usize>,
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
    /// From the first call of `Batch::news` until `forget_wakes`.
    news: Option<Arc<Wake>>,
    /// Until `forget_wakes`.
    end: Option<Arc<Wake>>,
}

fn notify(wake: Option<&Arc<Wake>>) {
    if let Some(wake) = wake {
        wake.notify();
    }
}

/// A batch in flight, or finished.
pub struct Batch {
    id: u64,
    clock: Clock,
    functions: Arc<[Function]>,
    /// Of a batch that does not grow.
    samples: usize,
    group_size: usize,
    additions: Option<OpenBatch>,
    delivery: Delivery,
    quorum: Option<Quorum>,
    /// Where functions have conditions.
    dependents: Option<Dependents>,
    /// Groups that were delivered early. Written under the scheduler's lock.
    delivered_early: Mutex<BTreeMap<usize, Cause>>,
    /// Written by `release`.
    payload: Mutex<Option<SharedPayload>>,
    submitted_ns: u64,
    batch_timeout_ns: Option<u64>,
    grid: Grid,
    /// For functions with `finish_group`: the grid of their own scores, one column wide, that the
    /// calls fill first.
    stages: Box<[Option<Grid>]>,
    /// Of failed cells, by (sample, function); those that ended together share one. Written by
    /// frames and sweeps.
    notes: Mutex<BTreeMap<(usize, FunctionId), Arc<Note>>>,
    /// Per function. Written by frames.
    records: Mutex<Box<[Vec<Record>]>>,
    /// What functions used, and named values of samples; only of those that report. Written by
    /// frames.
    reported: Mutex<BTreeMap<FunctionId, Reported>>,
    /// Per function that gathers, the times of its calls: each counts once, though the times stand
    /// in all of its cells. Written by frames and the scheduler.
    gathered: Mutex<Box<[Vec<Times>]>>,
    /// Per function: attempts beyond the first, those that were deferred apart, and those that an
    /// open circuit breaker excused. Written by the scheduler and frames.
    retries: Box<[AtomicU32]>,
    deferrals: Box<[AtomicU32]>,
    excused: Box<[AtomicU32]>,
    /// Outcomes of identical calls, per function. Written by the scheduler.
    shared: Box<[AtomicU32]>,
    /// Outcomes known from earlier calls, per function. Written by the scheduler.
    cached: Box<[AtomicU32]>,
    /// Groups not complete yet, and one more while the batch is open. Written by `announce`, `add`
    /// and `end_additions`; the one that takes it to zero ends the batch.
    open_groups: AtomicU64,
    /// When the last outcome came, 0 before. Written by `announce`.
    finished_ns: AtomicU64,
    ready: Mutex<Ready>,
}

impl Batch {
    pub(crate) fn new(
        id: u64,
        clock: Clock,
        functions: Arc<[Function]>,
        releases: &Arc<PayloadRelease>,
        spec: BatchSpec,
    ) -> io::Result<Self> {
        let misfit = if spec.streamed {
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
        let quorum = spec.delivery.group_quorum.map(|wanted| {
            let counts = functions.len() + usize::from(spec.streamed && whole);
            (wanted, Quorum::new(wanted, groups, spec.group_size, counts))
        });
        let needed = quorum.as_ref().filter(|_| !whole).map_or(spec.group_size, |(wanted, _)| *wanted);
        let quorum = quorum.map(|(_, quorum)| quorum);
        let additions =
            if spec.streamed { Some(OpenBatch::new(spec.group_size, needed, spec.max_pending)?) } else { None };
        let end = Some(Arc::new(Wake::new()?));
        let batch = Self {
            id,
            clock,
            samples: spec.samples,
            group_size: spec.group_size,
            additions,
            delivery: spec.delivery,
            quorum,
            dependents: Dependents::new(&functions, spec.samples, spec.streamed),
            delivered_early: Mutex::default(),
            payload: Mutex::new(Some(SharedPayload::new(spec.payload, releases))),
            submitted_ns,
            batch_timeout_ns: spec.batch_timeout_ns,
            grid: Grid::new(groups, spec.group_size, functions.len()),
            stages: functions.iter().map(stage).collect(),
            notes: Mutex::default(),
            records: Mutex::new(functions.iter().map(|_| Vec::new()).collect()),
            reported: Mutex::default(),
            gathered: Mutex::new(functions.iter().map(|_| Vec::new()).collect()),
            retries: functions.iter().map(|_| AtomicU32::new(0)).collect(),
            deferrals: functions.iter().map(|_| AtomicU32::new(0)).collect(),
            excused: functions.iter().map(|_| AtomicU32::new(0)).collect(),
            shared: functions.iter().map(|_| AtomicU32::new(0)).collect(),
            cached: functions.iter().map(|_| AtomicU32::new(0)).collect(),
            open_groups: AtomicU64::new(groups as u64 + u64::from(spec.streamed)),
            finished_ns: AtomicU64::new(0),
            ready: Mutex::new(Ready { groups: VecDeque::new(), handed_out: 0, news: None, end }),
            functions,
        };
        if groups == 0 && !spec.streamed {
            batch.finish();
        }
        Ok(batch)
    }

    #[must_use]
    pub const fn id(&self) -> u64 {
        self.id
    }

    /// Places of all its groups; of a streamed batch, so far.
    #[must_use]
    pub fn samples(&self) -> usize {
        self.additions.as_ref().map_or(self.samples, |additions| additions.groups() * self.group_size)
    }

    #[must_use]
    pub const fn group_size(&self) -> usize {
        self.group_size
    }

    #[must_use]
    pub fn groups(&self) -> usize {
        match &self.additions {
            Some(additions) => additions.groups(),
            None => self.samples.checked_div(self.group_size).unwrap_or(0),
        }
    }

    /// So many groups less to wait for, or, as one, no more additions; true when there is nothing
    /// left.
    fn close(&self, groups: u64) -> bool {
        let last = self.open_groups.fetch_sub(groups, Ordering::AcqRel) == groups;
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
    pub fn payload(&self) -> Option<SharedPayload> {
        self.payload.lock().clone()
    }

    /// Looks at what the calls are made of, without keeping it.
    pub(crate) fn with_payload<T>(&self, look: impl FnOnce(&dyn Payload) -> T) -> Option<T> {
        self.payload.lock().as_deref().map(look)
    }

    /// Gives up what the calls were made of, once all of them have ended: a result that is kept
    /// shall not keep the inputs.
    pub fn release(&self) -> Option<SharedPayload> {
        if self.is_done() { self.payload.lock().take() } else { None }
    }

    /// The clock when the batch was submitted.
    #[must_use]
    pub const fn submitted_ns(&self) -> u64 {
        self.submitted_ns
    }

    /// The clock when the call that begins at this sample could first be made: in a batch that
    /// streamed, when its last sample came; of a gated function, when its gate opened.
    #[must_use]
    pub fn ready_ns(&self, first: usize, function: FunctionId) -> u64 {
        let dependents = self.dependents.as_ref();
        if let Some(since_ns) =
            dependents.and_then(|dependents| dependents.since_ns(first, function)).filter(|ns| *ns != 0)
        {
            return since_ns;
        }
        let Some(additions) = &self.additions else { return self.submitted_ns };
        let since_ns = match self.functions[function].shape {
            Shape::Sample => additions.since_ns(first..first + 1),
            Shape::Group => additions.since_ns(first..first + self.group_size),
            Shape::Batch => additions.ended_ns().unwrap_or(0),
        };
        since_ns.max(self.submitted_ns)
    }

    /// The clock after which the call of this function that begins at this sample may not run any
    /// more, if there is such a bound.
    #[must_use]
    pub fn expires_ns(&self, first: usize, function: FunctionId) -> Option<u64> {
        let total = self.functions[function].policy.total_timeout.map(crate::clock::nanos);
        let total = total.map(|ns| self.ready_ns(first, function).saturating_add(ns));
        let batch = self.batch_timeout_ns.map(|ns| self.submitted_ns.saturating_add(ns));
        [total, batch].into_iter().flatten().min()
    }

    /// The clock when a call that begins at this sample is ended from outside at the latest, if
    /// there is such a bound: `expires_ns`, and the end of its group.
    #[must_use]
    pub fn ends_ns(&self, first: usize, function: FunctionId) -> Option<u64> {
        let start_ns =
            self.additions.as_ref().map_or(self.submitted_ns, |additions| additions.begun_ns(first / self.group_size));
        let group = self.delivery.group_timeout_ns.map(|ns| start_ns.saturating_add(ns));
        [self.expires_ns(first, function), group].into_iter().flatten().min()
    }

    pub(crate) const fn batch_timeout_ns(&self) -> Option<u64> {
        self.batch_timeout_ns
    }

    /// Announces completed groups; true when the last is among them.
    pub(crate) fn announce(&self, groups: &[usize]) -> bool {
        if groups.is_empty() {
            return false;
        }
        if let Some(additions) = &self.additions {
            groups.iter().for_each(|group| additions.complete(*group));
        }
        {
            let mut ready = self.ready.lock();
            let known = !ready.groups.is_empty();
            ready.groups.extend(groups);
            if !known {
                // Else it is readable already, and a system call per group would cost more than a
                // cheap function.
                notify(ready.news.as_ref());
            }
        }
        self.close(groups.len() as u64)
    }

    fn finish(&self) {
        // first: what is done lets its descriptors go under this lock
        let ready = self.ready.lock();
        self.finished_ns.store(self.clock.now_ns(), Ordering::Release);
        notify(ready.end.as_ref());
        if ready.handed_out == self.groups() {
            notify(ready.news.as_ref());
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

    /// A completed group that was not handed out yet.
    #[must_use]
    pub fn take_group(&self) -> Option<usize> {
        let mut ready = self.ready.lock();
        let group = ready.groups.pop_front()?;
        ready.handed_out += 1;
        // Left readable for ever once all are handed out, so that every consumer learns of it.
        // `finish` looks under this lock, after it said that the batch is done.
        if ready.groups.is_empty()
            && !(self.is_done() && ready.handed_out == self.groups())
            && let Some(news) = &ready.news
        {
            news.drain();
        }
        Some(group)
    }

    /// Whether all groups were handed out, and no more come.
    #[must_use]
    pub fn is_exhausted(&self) -> bool {
        self.is_done() && self.ready.lock().handed_out == self.groups()
    }

    /// Readable while a completed group waits, as the head says. It fails where there are no
    /// descriptors left.
    pub fn news(&self) -> io::Result<Arc<Wake>> {
        let mut ready = self.ready.lock();
        if let Some(news) = &ready.news {
            return Ok(news.clone());
        }
        let news = Arc::new(Wake::new()?);
        // Under the lock of all who tell of more: nothing that came before is missed, and nothing
        // that comes after.
        if !ready.groups.is_empty() || (self.is_done() && ready.handed_out == self.groups()) {
            news.notify();
        }
        ready.news = Some(news.clone());
        Ok(news)
    }

    /// Readable from the last outcome on; `None` once it was let go.
    #[must_use]
    pub fn end(&self) -> Option<Arc<Wake>> {
        self.ready.lock().end.clone()
    }

    /// Readable while samples can be added without waiting, as `max_pending` says; `None` where
    /// they always can, and once it was let go.
    #[must_use]
    pub fn room(&self) -> Option<Arc<Wake>> {
        self.additions.as_ref().and_then(OpenBatch::room)
    }

    /// Lets the descriptors go, if the batch is done: whoever holds them still finds all of them
    /// readable.
    pub fn forget_wakes(&self) {
        if self.is_done() {
            if let Some(additions) = &self.additions {
                additions.forget_room();
            }
            let mut ready = self.ready.lock();
            let gone = (ready.news.take(), ready.end.take());
            drop(ready);
            drop(gone);
        }
    }
}

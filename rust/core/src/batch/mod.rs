//! A batch: its grid, the notes and records of its cells, and the announcement of its groups.
//!
//! - Each completed group is handed out once, in order of completion, to any consumer.
//! - `news` is readable while a completed group waits to be handed out, and for ever once all have
//!   been; `end` from the last outcome on. `news` is made at its first use: most callers wait for
//!   the end alone.
//! - Notes, records and extra values of a cell are written before its outcome, so a reader of the
//!   outcome finds them.
//! - A batch that is done closes its descriptors once no thread waits, so a kept result holds none.

mod adding;
mod cells;
mod completed_groups;
mod completion;
mod deadlines;
mod dependents;
mod observed;
mod records;
mod spec;

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::io;
use std::ops::Range;
use std::sync::Arc;

use crate::call::Cause;
use crate::clock::Clock;
use crate::delivery::{Delivery, Quorum};
use crate::dependents::Dependents;
use crate::function::{Function, FunctionId, Parsing, Shape, visible};
use crate::grid::Grid;
use crate::open_batch::OpenBatch;
use crate::outcome::{Note, Outcome, Status, Times};
use crate::pairs::Pairs;
use crate::payload::{Gone, Payload, PayloadRelease, SharedPayload};
use crate::report::{NamedExtra, Usage};
use crate::sync::{AtomicU32, AtomicU64, Mutex, Ordering};
use crate::wake::Wake;

use records::Records;

pub(crate) use completion::CompletedCells;
pub use records::Record;
pub use spec::BatchSpec;

/// Reports of one function's calls.
#[derive(Clone, Debug, Default)]
struct FunctionReports {
    usage: Usage,
    /// Usage of calls on one sample; only where the batch keeps it apart.
    usage_by_sample: BTreeMap<usize, Usage>,
    /// Named values by sample, in the order in which attempts ended.
    extra: BTreeMap<usize, Vec<NamedExtra>>,
    /// Samples whose call succeeded although a part of it failed.
    incomplete: BTreeSet<usize>,
}

/// Returns the number of ids that a batch takes: one, and one for each slot of member calls.
pub(crate) fn ids_of_batch(functions: &[Function]) -> u64 {
    1 + functions.iter().map(|function| function.member_calls as u64).sum::<u64>()
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
    /// Present from the first call of `Batch::news` until `forget_wakes`.
    news: Option<Arc<Wake>>,
    /// Until `forget_wakes`.
    end: Option<Arc<Wake>>,
}

/// Origin of a batch of member calls: the batch and function whose calls requested them
/// (`compose`).
pub(crate) struct CallOwner {
    pub batch: Arc<Batch>,
    pub function: FunctionId,
    /// The slot of the member call within its owner's call, such as the number of a draw, a member,
    /// or a pair of a sample.
    pub slot: usize,
}

impl CallOwner {
    /// The first sample of the call that requested a member call on this sample.
    pub(crate) fn first(&self, sample: usize) -> usize {
        match self.batch.functions[self.function].shape {
            Shape::Group => sample - sample % self.batch.group_size.max(1),
            Shape::Sample | Shape::Batch => sample,
        }
    }

    /// The pairs that its calls of a member are about, if they are.
    fn pairs_of(&self, member: FunctionId) -> Option<Pairs> {
        let Function { second_columns, .. } = &self.batch.functions[member];
        let (group_size, distance) = (self.batch.group_size, self.slot + 1);
        (!second_columns.is_empty()).then(|| Pairs { second_columns: second_columns.clone(), group_size, distance })
    }
}

/// A batch in flight, or finished.
pub struct Batch {
    /// Lower in older batches; calls are made in this order.
    id: u64,
    clock: Clock,
    functions: Arc<[Function]>,
    /// Number of functions with cells in this batch. Hidden functions have cells in separate
    /// batches.
    columns: usize,
    /// Present in a batch of member calls. Indexes of samples are the owner's.
    owner: Option<CallOwner>,
    /// False in a batch of member calls whose values are the owner's.
    has_values: bool,
    /// Present in a batch of member calls on pairs of samples.
    pairs: Option<Pairs>,
    /// Number of samples of a batch that does not grow.
    samples: usize,
    group_size: usize,
    additions: Option<OpenBatch>,
    delivery: Delivery,
    quorum: Option<Quorum>,
    /// Present if functions have conditions.
    dependents: Option<Dependents>,
    /// Groups that were delivered early. Written under the scheduler's lock.
    delivered_early: Mutex<BTreeMap<usize, Cause>>,
    /// Written by `release`.
    payload: Mutex<Option<SharedPayload>>,
    submitted_ns: u64,
    batch_timeout_ns: Option<u64>,
    step: Option<u64>,
    usage_by_sample: bool,
    grid: Grid,
    /// Grids for functions with `finish_group`: their scores before shaping, one column wide. The
    /// calls fill these first.
    stages: Box<[Option<Grid>]>,
    /// Notes of failed cells, by (sample, function); cells that ended together share one. Written
    /// by frames and sweeps.
    notes: Mutex<BTreeMap<(usize, FunctionId), Arc<Note>>>,
    /// Records of each function's calls. Written by frames.
    records: Mutex<Box<[Records]>>,
    /// Usage, and named values of samples; only for functions that report any. Written by frames.
    reported: Mutex<BTreeMap<FunctionId, FunctionReports>>,
    /// The times of calls on gathered samples, by function. A call counts once here, though its
    /// times are in all of its cells. Written by frames and the scheduler.
    gathered: Mutex<Box<[Vec<Times>]>>,
    /// Per function: attempts beyond the first, deferred attempts, and attempts excused because of
    /// an open circuit breaker. Written by the scheduler and frames.
    retries: Box<[AtomicU32]>,
    deferrals: Box<[AtomicU32]>,
    excused: Box<[AtomicU32]>,
    /// Number of outcomes taken from identical calls, by function. Written by the scheduler.
    shared: Box<[AtomicU32]>,
    /// Number of outcomes kept from earlier calls, by function. Written by the scheduler.
    cached: Box<[AtomicU32]>,
    /// Groups not complete yet, and one more while the batch is open. Written by `announce`, `add`
    /// and `end_additions`; the write that takes it to zero ends the batch.
    open_groups: AtomicU64,
    /// The clock at the last outcome, 0 before. Written by `announce`.
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
        let end = Some(Arc::new(Wake::new()?));
        let all = 0..visible(&functions);
        Self::of_functions(id, clock, functions, all, releases, spec, end)
    }

    /// The calls of a hidden function for the calls of another: each is made when its owner
    /// requests it, and ends as a group of one. Its values are the owner's without a `payload`.
    pub(crate) fn of_member_calls(
        id: u64,
        clock: Clock,
        functions: Arc<[Function]>,
        function: FunctionId,
        owner: CallOwner,
        payload: Option<Box<dyn Payload>>,
    ) -> io::Result<Self> {
        let has_values = payload.is_some();
        let payload = payload.unwrap_or_else(|| Box::new(Gone));
        // Each call can be given up.
        let delivery = Delivery { cancellable: true, ..Delivery::default() };
        let spec = BatchSpec { streamed: true, delivery, ..BatchSpec::whole(0, 1, payload) };
        let batch = Self::of_one_function(id, clock, functions, function, spec)?;
        let additions = batch.additions.map(OpenBatch::in_any_order);
        let pairs = owner.pairs_of(function);
        Ok(Self { owner: Some(owner), has_values, pairs, dependents: None, additions, ..batch })
    }

    /// Makes a batch for calls of one function that belong to a batch of another process.
    pub(crate) fn of_one_function(
        id: u64,
        clock: Clock,
        functions: Arc<[Function]>,
        function: FunctionId,
        spec: BatchSpec,
    ) -> io::Result<Self> {
        Self::of_functions(id, clock, functions, function..function + 1, &Arc::default(), spec, None)
    }

    fn of_functions(
        id: u64,
        clock: Clock,
        functions: Arc<[Function]>,
        columns: Range<FunctionId>,
        releases: &Arc<PayloadRelease>,
        spec: BatchSpec,
        end: Option<Arc<Wake>>,
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
        // A batch for one function may be for a hidden one.
        let known = if columns.start == 0 { columns.end } else { functions.len() };
        let stage = |function: &Function| function.finish.then(|| Grid::new(groups, spec.group_size, 1));
        let submitted_ns = clock.now_ns();
        // A function that reads a group or the whole batch needs all of its samples.
        let whole = functions.iter().any(|function| function.finish || function.shape != Shape::Sample);
        let quorum = spec.delivery.group_quorum.map(|wanted| {
            let counts = columns.len() + usize::from(spec.streamed && whole);
            (wanted, Quorum::new(wanted, groups, spec.group_size, counts))
        });
        let needed = quorum.as_ref().filter(|_| !whole).map_or(spec.group_size, |(wanted, _)| *wanted);
        let quorum = quorum.map(|(_, quorum)| quorum);
        let additions =
            if spec.streamed { Some(OpenBatch::new(spec.group_size, needed, spec.max_pending)?) } else { None };
        let batch = Self {
            id,
            clock,
            columns: known,
            owner: None,
            has_values: true,
            pairs: None,
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
            step: spec.step,
            usage_by_sample: spec.usage_by_sample,
            grid: Grid::of_functions(groups, spec.group_size, columns),
            stages: functions.iter().map(stage).collect(),
            notes: Mutex::default(),
            records: Mutex::new(functions.iter().map(|_| Records::default()).collect()),
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

    /// Unique among the engine's batches.
    #[must_use]
    pub const fn id(&self) -> u64 {
        self.id
    }

    /// The number of the batch as users see it, from 1; of member calls that of their owner.
    #[must_use]
    pub fn number(&self) -> u64 {
        self.visible().id.div_ceil(ids_of_batch(&self.functions))
    }

    /// The batch that users see: of member calls, their owner's.
    fn visible(&self) -> &Self {
        self.owner.as_ref().map_or(self, |owner| &owner.batch)
    }

    /// Returns the number of this batch, the group of a sample, and how many calls of a function
    /// share texts with that sample's: those of its group, or several on the sample itself.
    #[must_use]
    pub fn alike(&self, sample: usize) -> (u64, usize, usize) {
        let shown = self.visible();
        let leader = self.functions[self.grid.first_function()].member_of.filter(|_| self.owner.is_some());
        let members = |leader: FunctionId| {
            let is_member = |function: &&Function| {
                function.member_of == Some(leader) && !matches!(function.parsing, Some(Parsing::Of(_)))
            };
            self.functions.iter().filter(is_member).count()
        };
        // All criteria of a rubric in one call share it.
        let several = |leader: FunctionId| members(leader) == 1 && self.functions[leader].member_calls > 1;
        let least = if leader.is_some_and(several) { 2 } else { 0 };
        (shown.id, sample / shown.group_size.max(1), shown.group_size.max(least))
    }

    /// Present in a batch of member calls.
    pub(crate) const fn owner(&self) -> Option<&CallOwner> {
        self.owner.as_ref()
    }

    /// The slot of its member calls; 0 for other calls.
    #[must_use]
    pub fn slot(&self) -> usize {
        self.owner.as_ref().map_or(0, |owner| owner.slot)
    }

    /// Ends the open member calls of this batch, whose owners have ended.
    pub(crate) fn give_up(&self) {
        let outcome = Outcome::without_value(Status::Cancelled, Times::default());
        for sample in 0..self.samples() {
            if let Some(claim) = self.grid.claim_open(sample, self.grid.first_function()) {
                claim.complete([outcome], |_| {});
            }
        }
    }

    /// Returns the batch and the function to which usage is counted: the ones that users see.
    pub(crate) fn counted_for(&self, function: FunctionId) -> (&Self, FunctionId) {
        self.owner.as_ref().map_or((self, function), |owner| (&*owner.batch, owner.function))
    }

    /// Number of places in all groups; of a streamed batch, so far.
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

    /// The functions that may have cells in this batch.
    #[must_use]
    pub fn functions(&self) -> &[Function] {
        &self.functions[..self.columns]
    }

    /// Returns the values for the calls; `None` after `release`.
    #[must_use]
    pub fn payload(&self) -> Option<SharedPayload> {
        let payload = self.with_values().payload.lock().clone();
        match &self.pairs {
            Some(pairs) => payload.map(|payload| pairs.of(&payload)),
            None => payload,
        }
    }

    /// The batch whose values its calls have.
    fn with_values(&self) -> &Self {
        if self.has_values { self } else { self.visible() }
    }

    /// Passes the values of the calls to `look`, without keeping them.
    pub(crate) fn with_payload<T>(&self, look: impl FnOnce(&dyn Payload) -> T) -> Option<T> {
        self.with_values().payload.lock().as_deref().map(look)
    }

    /// Tokens of a call on this sample, where its function counts them.
    pub(crate) fn tokens(&self, function: FunctionId, sample: u32) -> Option<f64> {
        self.with_payload(|payload| match &self.pairs {
            Some(pairs) => pairs.tokens(payload, function, sample),
            None => payload.tokens(function, sample),
        })?
    }

    /// Releases the values of the calls, once all calls have ended, so that a kept result does not
    /// keep its inputs.
    pub fn release(&self) -> Option<SharedPayload> {
        if self.is_done() { self.payload.lock().take() } else { None }
    }

    /// The training step of the batch, if one was given.
    #[must_use]
    pub const fn step(&self) -> Option<u64> {
        self.step
    }

    pub(crate) fn keeps_usage_by_sample(&self) -> bool {
        self.visible().usage_by_sample
    }

    pub(crate) const fn batch_timeout_ns(&self) -> Option<u64> {
        self.batch_timeout_ns
    }

    /// Returns whether every cell has its outcome; of member calls those of their owner.
    #[must_use]
    pub fn is_done(&self) -> bool {
        self.visible().finished_ns.load(Ordering::Acquire) != 0
    }
}

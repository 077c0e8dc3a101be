//! An engine on one lane.

use std::ops::Deref;
use std::sync::Arc;
use std::time::Duration;

use guerdon_core::batch::{Batch, BatchSpec};
use guerdon_core::clock::Clock;
use guerdon_core::compose::{ComposeLane, Composite};
use guerdon_core::function::{Function, FunctionId};
use guerdon_core::lane::Lane;
use guerdon_core::open_batch::Placement;
use guerdon_core::outcome::{Cell, Status};
use guerdon_core::scheduler::Scheduler;

use crate::lane::{FakeLane, Room};
use crate::log::Log;
use crate::script::{Act, Script};
use crate::setup::{done, spec};

/// An engine in the current runtime, and its lane.
pub struct Rig<L = FakeLane> {
    pub engine: Scheduler,
    pub lane: Arc<L>,
}

impl Rig {
    /// An engine on a lane that follows `script`.
    #[must_use]
    pub fn new(room: Room, functions: Vec<Function>, script: impl Script) -> Self {
        Self::on(Arc::new(FakeLane::new(room, script)), functions)
    }

    /// An engine on a lane with room for all calls, which run side by side.
    #[must_use]
    pub fn wide(functions: Vec<Function>, script: impl Script) -> Self {
        Self::new(Room { places: 64, at_once: true, ..Room::default() }, functions, script)
    }

    /// An engine whose lane 1 makes the calls of members on lane 0, which follows `script`.
    #[must_use]
    pub fn composed(
        functions: Vec<Function>,
        composites: Vec<Option<Composite>>,
        room: Room,
        script: impl Script,
    ) -> Self {
        let (lane, clock) = (Arc::new(FakeLane::new(room, script)), Clock::start());
        let lanes: Vec<Arc<dyn Lane>> = vec![lane.clone(), Arc::new(ComposeLane::new(clock, composites))];
        Self { engine: Scheduler::start(&tokio::runtime::Handle::current(), clock, functions, lanes), lane }
    }

    #[must_use]
    pub fn log(&self) -> Arc<Log> {
        self.lane.log()
    }
}

impl<L: Lane> Rig<L> {
    #[must_use]
    pub fn on(lane: Arc<L>, functions: Vec<Function>) -> Self {
        let runtime = tokio::runtime::Handle::current();
        Self { engine: Scheduler::start(&runtime, Clock::start(), functions, vec![lane.clone()]), lane }
    }

    /// Submits a batch that has a grid.
    #[expect(clippy::expect_used, reason = "a test can't go on without its batch")]
    pub fn submit(&self, spec: BatchSpec) -> Arc<Batch> {
        self.engine.submit(spec).expect("the batch has a grid")
    }

    /// An open batch.
    pub fn open(&self, group_size: usize) -> Arc<Batch> {
        self.submit(BatchSpec { streamed: true, group_size, ..spec(0, 1) })
    }

    /// Adds samples to an open batch; returns their numbers.
    #[expect(clippy::expect_used, reason = "a test can't go on without its samples")]
    pub fn add(&self, batch: &Arc<Batch>, places: Placement) -> Vec<usize> {
        let added = batch.reserve(&places).expect("there is room for them");
        self.engine.add(batch, &added);
        added.samples
    }

    /// Submits a batch and waits for its end.
    pub async fn run(&self, spec: BatchSpec) -> Arc<Batch> {
        let batch = self.submit(spec);
        assert!(done(&batch).await, "the batch never ends");
        batch
    }
}

impl<L> Deref for Rig<L> {
    type Target = Scheduler;

    fn deref(&self) -> &Scheduler {
        &self.engine
    }
}

/// A number for each of `samples`, after so long.
#[must_use]
pub fn returns(after: Duration, samples: usize, value: f64) -> Act {
    Act::Return { after, cells: vec![Cell::Value(value); samples] }
}

/// The statuses of a function's cells.
///
/// # Panics
///
/// A cell is still open.
#[must_use]
#[expect(clippy::expect_used, reason = "an open cell fails the test")]
pub fn statuses(batch: &Batch, function: FunctionId) -> Vec<Status> {
    let status = |sample| batch.cell(sample, function).expect("the cell is complete").outcome.status;
    (0..batch.samples()).map(status).collect()
}

/// Whole seconds from a batch's submission to its end.
#[must_use]
pub fn seconds(batch: &Batch) -> u64 {
    batch.elapsed_ns() / 1_000_000_000
}

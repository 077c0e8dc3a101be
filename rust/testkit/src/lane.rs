//! A lane that follows a script.
//!
//! - Its time is tokio's: on a paused runtime no real time passes.
//! - It keeps the contract of `guerdon_core::lane`, except where the script makes it break the
//!   contract on purpose.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;

use guerdon_core::call::CallKind;
use guerdon_core::clock::nanos;
use guerdon_core::frame::Frame;
use guerdon_core::function::FunctionId;
use guerdon_core::lane::{CallsRun, CloseFuture, Lane, LaneWaker};
use guerdon_core::member_call::JUDGMENTS;
use guerdon_core::outcome::{Cell, FailureKind, Times};
use guerdon_core::report::{Extra, Report};
use parking_lot::Mutex;
use tokio::runtime::Handle;
use tokio::sync::Semaphore;
use tokio::task::JoinSet;

use crate::identified::identity;
use crate::log::{CallSeen, FrameSeen, Log};
use crate::script::{Act, Ask, Script, failure};

/// Interval at which a running call is checked, as the process lane's tick.
const TICK: Duration = Duration::from_millis(20);

/// Rule for a fake lane's room.
#[derive(Clone, Copy, Debug)]
pub struct Room {
    /// Frames at a time.
    pub places: usize,
    pub frame_calls: usize,
    pub frame_bytes: usize,
    /// Runs all calls of a frame at a time (up to the function's `concurrency`), like an event
    /// loop; otherwise one by one, like a worker.
    pub at_once: bool,
    /// With `at_once`: reports to the scheduler that `width` calls of a function run side by side.
    pub width: Option<usize>,
    /// Time in one call after which the calls behind it in the frame are given back.
    pub take_back: Duration,
}

impl Default for Room {
    /// Room of two workers.
    fn default() -> Self {
        Self {
            places: 2,
            frame_calls: 8,
            frame_bytes: usize::MAX,
            at_once: false,
            width: None,
            take_back: Duration::MAX,
        }
    }
}

/// A lane with room for frames, and a script.
pub struct FakeLane {
    room: Room,
    runtime: Handle,
    script: Arc<dyn Script>,
    log: Arc<Log>,
    /// Number of running frames. Written by `run` and by the end of a frame's work.
    held: Arc<AtomicUsize>,
    /// Number of times that the scheduler requested its room.
    asked: AtomicU64,
    /// With `at_once`: the places of each function's calls.
    loops: Mutex<BTreeMap<FunctionId, Arc<Semaphore>>>,
    /// Work under way; `None` once closed.
    tasks: Mutex<Option<JoinSet<()>>>,
}

impl FakeLane {
    /// Makes a lane on the current runtime.
    #[must_use]
    pub fn new(room: Room, script: impl Script) -> Self {
        Self {
            room,
            runtime: Handle::current(),
            script: Arc::new(script),
            log: Arc::default(),
            held: Arc::default(),
            asked: AtomicU64::new(0),
            loops: Mutex::default(),
            tasks: Mutex::new(Some(JoinSet::new())),
        }
    }

    #[must_use]
    pub fn log(&self) -> Arc<Log> {
        self.log.clone()
    }

    /// Number of running frames.
    pub fn held(&self) -> usize {
        self.held.load(Ordering::SeqCst)
    }

    /// Returns the number of times that the scheduler requested its room; an idle engine does not.
    pub fn asked(&self) -> u64 {
        self.asked.load(Ordering::SeqCst)
    }
}

impl Lane for FakeLane {
    fn attach(&self, _: LaneWaker) {}

    fn room(&self, _: FunctionId) -> usize {
        self.asked.fetch_add(1, Ordering::SeqCst);
        self.room.places.saturating_sub(self.held())
    }

    fn parallelism(&self, _: FunctionId) -> usize {
        self.room.places
    }

    fn pool(&self, function: FunctionId) -> usize {
        // Functions on an event loop don't wait for each other.
        if self.room.at_once { function } else { 0 }
    }

    fn frame_calls(&self, _: FunctionId) -> usize {
        if self.room.at_once { usize::MAX } else { self.room.frame_calls }
    }

    fn calls_run(&self, _: FunctionId) -> CallsRun {
        self.room.width.map_or(CallsRun::InTurn, CallsRun::AtMost)
    }

    fn frame_bytes(&self) -> usize {
        self.room.frame_bytes
    }

    fn run(&self, frame: Frame) {
        let mut tasks = self.tasks.lock();
        let Some(tasks) = tasks.as_mut() else {
            return;
        };
        self.held.fetch_add(1, Ordering::SeqCst);
        self.log.frame(FrameSeen {
            batch: frame.batch().id(),
            function: frame.function_id(),
            kind: frame.kind(),
            alone: frame.alone(),
            calls: (0..frame.len()).map(|call| (frame.first(call), frame.attempt(call))).collect(),
            at_ns: frame.clock().now_ns(),
        });
        let most = frame.function().policy.concurrency.unwrap_or(256);
        let places =
            self.loops.lock().entry(frame.function_id()).or_insert_with(|| Arc::new(Semaphore::new(most))).clone();
        let job = Arc::new(Job {
            script: self.script.clone(),
            log: self.log.clone(),
            take_back: if self.room.at_once { Duration::MAX } else { self.room.take_back },
            at_once: self.room.at_once,
            _place: SlotGuard(self.held.clone()),
            frame: Mutex::new(frame),
        });
        if self.room.at_once {
            tasks.spawn_on(job.at_once(places), &self.runtime);
        } else {
            tasks.spawn_on(job.in_turn(), &self.runtime);
        }
    }

    fn close(&self) -> CloseFuture {
        let tasks = self.tasks.lock().take();
        Box::pin(async move {
            if let Some(mut tasks) = tasks {
                tasks.shutdown().await;
            }
        })
    }
}

/// Gives a slot back when dropped.
struct SlotGuard(Arc<AtomicUsize>);

impl Drop for SlotGuard {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::SeqCst);
    }
}

/// A running frame. Fields drop in order: the place is free when the frame's end makes the
/// scheduler search for room.
struct Job {
    script: Arc<dyn Script>,
    log: Arc<Log>,
    take_back: Duration,
    at_once: bool,
    _place: SlotGuard,
    frame: Mutex<Frame>,
}

impl Job {
    async fn in_turn(self: Arc<Self>) {
        let calls = self.frame.lock().len();
        for call in 0..calls {
            if !self.run(call).await {
                return;
            }
        }
    }

    async fn at_once(self: Arc<Self>, places: Arc<Semaphore>) {
        let calls = self.frame.lock().len();
        let mut tasks = JoinSet::new();
        for call in 0..calls {
            let (job, places) = (self.clone(), places.clone());
            tasks.spawn(async move {
                let _place = places.acquire().await;
                job.run(call).await;
            });
        }
        while tasks.join_next().await.is_some() {}
    }

    /// Runs one call; false if the frame must not go on.
    async fn run(&self, call: usize) -> bool {
        let (clock, timeout, ask) = {
            let frame = self.frame.lock();
            if !frame.is_pending(call) {
                return false;
            }
            if !frame.is_open(call) {
                return true;
            }
            (frame.clock(), frame.function().policy.timeout, self.ask(&frame, call))
        };
        let act = self.script.act(&ask);
        match act {
            Act::GiveBack => {
                let end = if self.at_once { call + 1 } else { self.frame.lock().len() };
                self.frame.lock().give_back(call..end);
                return self.at_once;
            }
            Act::FailSetup => {
                self.frame.lock().fail_setup("setup by script".to_owned(), None);
                return false;
            }
            _ => {}
        }
        let started_ns = clock.now_ns();
        self.log.started(ask.function);
        let wants = match &act {
            Act::Hang => Duration::MAX,
            Act::Return { after, .. } | Act::Fail { after, .. } | Act::Crash { after } => *after,
            Act::Lose { after } | Act::Late { after, .. } => *after,
            Act::Panic | Act::GiveBack | Act::FailSetup => Duration::ZERO,
        };
        let looks = !matches!(act, Act::Late { .. });
        let wanted = self.wait(call, wants.min(timeout), looks).await;
        let ended_ns = clock.now_ns();
        let Ask { batch, function, kind, first, attempt, handed, .. } = ask;
        self.log.ended(CallSeen { batch, function, kind, first, attempt, handed, started_ns, ended_ns });
        if !wanted {
            return true;
        }
        let times = Times { started_ns, run_ns: ended_ns - started_ns };
        let mut frame = self.frame.lock();
        if wants > timeout {
            frame.fail(call, failure(FailureKind::Timeout), times);
            return true;
        }
        match act {
            Act::Return { cells, .. } | Act::Late { cells, .. } => Self::complete(&mut frame, call, cells, times),
            Act::Fail { failure, .. } => frame.fail(call, failure, times),
            Act::Crash { .. } => {
                frame.fail(call, failure(FailureKind::Crashed), times);
                return self.at_once;
            }
            Act::Lose { .. } => return self.at_once,
            Act::Panic => {
                drop(frame);
                // Panics without a message.
                std::panic::resume_unwind(Box::new("by script"));
            }
            Act::Hang | Act::GiveBack | Act::FailSetup => {}
        }
        true
    }

    fn ask(&self, frame: &Frame, call: usize) -> Ask {
        let (function, kind) = (frame.function_id(), frame.kind());
        let here = || (frame.batch().id(), frame.first(call));
        let ((batch, first), attempt) = (identity(frame, call).unwrap_or_else(here), frame.attempt(call));
        let finish = kind == CallKind::Finish;
        let handed = self.log.handed(batch, function, finish, first, attempt);
        let scores = if finish { frame.scores(call) } else { Vec::new() };
        Ask { batch, function, kind, first, samples: frame.size(call), attempt, handed, scores }
    }

    fn complete(frame: &mut Frame, call: usize, mut cells: Vec<Cell>, times: Times) {
        if !frame.function().columns.is_empty() {
            // Its cells are those of a rubric's columns.
            let score = |cell| if let Cell::Value(score) = cell { Extra::Number(score) } else { Extra::None };
            let judgment = |cell| [score(cell), Extra::from("so")];
            let mut report = Report::default();
            report.add(0, JUDGMENTS, Extra::List(cells.into_iter().flat_map(judgment).collect()));
            frame.report(call, report);
            cells = vec![Cell::Abstained];
        }
        match cells.pop() {
            Some(cell) if cells.is_empty() => frame.complete(call, cell, times),
            last => {
                cells.extend(last);
                frame.complete_many(call, cells, times);
            }
        }
    }

    /// Waits for a call's run time; false if the scheduler ended the call meanwhile and the lane
    /// `looks`.
    async fn wait(&self, call: usize, run: Duration, looks: bool) -> bool {
        let mut ran = Duration::ZERO;
        let mut behind = true;
        while ran < run {
            let step = TICK.min(run - ran);
            tokio::time::sleep(step).await;
            ran += step;
            let mut frame = self.frame.lock();
            if looks && !frame.is_open(call) {
                return false;
            }
            if behind && ran >= self.take_back {
                behind = false;
                frame.observe(nanos(ran));
                let calls = frame.len();
                frame.give_back(call + 1..calls);
            }
        }
        if run.is_zero() {
            tokio::task::yield_now().await;
        }
        true
    }
}

//! State that the supervisors of a lane's workers share.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::Sender;
use std::time::Duration;

use guerdon_core::clock::Clock;
use guerdon_core::frame::Frame;
use guerdon_core::function::FunctionId;
use guerdon_core::in_flight::{InFlight, Location, Stack};
use guerdon_core::lane::LaneWaker;
use guerdon_core::loss_ledger::LossLedger;
use guerdon_core::tracer::{Executor, Moment, TraceEvent};
use parking_lot::Mutex;
use rustix::process::Pid;
use tokio::runtime::Handle;
use tokio::sync::watch;
use tokio::time::{sleep, timeout};

use crate::config::ProcessConfig;
use crate::descriptors;
use crate::give_way::{GiveWay, RoomRequest};
use crate::open_sessions::OpenSessions;
use crate::output::Printer;
use crate::slots::{Slot, SlotKind, Slots};
use crate::zygote::{LaneStage, Zygote};

/// Interval of attempts to read frames that a session has locked while it pickles values.
const FRAMES_LOCKED: Duration = Duration::from_millis(1);

pub(super) struct LaneState {
    pub config: Arc<ProcessConfig>,
    pub clock: Clock,
    pub waker: LaneWaker,
    pub zygote: Zygote,
    /// Zygote for calls during which zygotes were lost.
    pub suspects_zygote: Zygote,
    /// The modules that the zygotes import for values. Written by frames that need more.
    modules: Mutex<BTreeSet<Arc<str>>>,
    /// Calls that were in flight when zygotes were lost.
    pub losses: LossLedger<()>,
    pub printer: Arc<Printer>,
    pub slots: Slots,
    pub names: Arc<[Arc<str>]>,
    /// The folder of the worker's code, which stacks leave out.
    pub worker_dir: String,
    /// Bounds the start of a worker that loads the functions by itself.
    pub load_timeout: Duration,
    /// Written by `ProcessLane::close`.
    pub stage: watch::Receiver<LaneStage>,
    pub counts: Counts,
    /// Sessions of all workers.
    pub sessions: OpenSessions,
    /// True once a warning about a narrow pool was given. Written by the supervisors.
    reported_narrow: AtomicBool,
    /// Requests of slots that can't start a worker for room.
    pub give_way: Arc<GiveWay>,
    /// Processes whose end was not seen yet. Written by `LiveProcess`.
    live: Mutex<BTreeSet<i32>>,
    /// The size of `live`.
    alive: watch::Sender<usize>,
}

/// Counts since the lane's start. Written by the supervisors.
#[derive(Default)]
pub(super) struct Counts {
    pub forks: AtomicU64,
    pub restarts: AtomicU64,
    pub kills: AtomicU64,
}

impl LaneState {
    #[expect(clippy::too_many_arguments, reason = "one caller, which makes each of them")]
    pub(super) fn new(
        config: Arc<ProcessConfig>,
        clock: Clock,
        waker: LaneWaker,
        zygote: Zygote,
        suspects_zygote: Zygote,
        printer: Arc<Printer>,
        slots: Slots,
        names: Arc<[Arc<str>]>,
        load_timeout: Duration,
        stage: watch::Receiver<LaneStage>,
    ) -> Self {
        Self {
            worker_dir: config.worker_dir.to_string_lossy().into_owned(),
            config,
            clock,
            waker,
            zygote,
            suspects_zygote,
            modules: Mutex::default(),
            losses: LossLedger::default(),
            printer,
            slots,
            names,
            load_timeout,
            stage,
            counts: Counts::default(),
            sessions: OpenSessions::default(),
            reported_narrow: AtomicBool::new(false),
            give_way: Arc::default(),
            live: Mutex::default(),
            alive: watch::Sender::new(0),
        }
    }

    /// Sends the names of a frame's modules to the zygotes, so that the frame's worker is forked
    /// with these modules.
    pub(super) fn preload(&self, frame: &Frame) {
        let mut new = Vec::new();
        frame.modules(&mut |name| {
            let mut known = self.modules.lock();
            if !known.contains(name) {
                let name = Arc::<str>::from(name);
                known.insert(name.clone());
                new.push(name);
            }
        });
        if !new.is_empty() {
            self.suspects_zygote.preload(new.clone());
            self.zygote.preload(new);
        }
    }

    /// Reports an event of a slot's worker to the engine's tracer, if there is one.
    pub(super) fn moment(&self, what: Moment, slot: &Slot, why: impl FnOnce() -> String) {
        if let Some(tracer) = self.waker.tracer() {
            let (executor, at_ns) = (Executor::Worker(slot.index), self.clock.now_ns());
            tracer.record(TraceEvent::Moment { what, executor, function: None, at_ns, why: why() });
        }
    }

    /// Returns whether a function's output is counted before its calls end.
    pub(super) fn is_metered(&self, function: FunctionId) -> bool {
        self.config.limits_of(function).max_output.is_some()
    }

    /// Completes the calls that have returned.
    pub(super) fn complete_ended(&self) {
        self.sessions.complete_ended(|function| self.is_metered(function), || self.clock.now_ns());
    }

    /// Requests the calls and stacks of the workers, while the work goes on. A worker without a
    /// call drops the sender; a call whose stack can't be read comes without it.
    pub(super) fn ask_in_flight(self: &Arc<Self>, runtime: &Handle, within: Duration, answer: &Sender<InFlight>) {
        for (child, frames) in self.sessions.all() {
            let (shared, answer) = (self.clone(), answer.clone());
            runtime.spawn(async move {
                let running_claim = timeout(within / 4, async {
                    loop {
                        if let Some(frames) = frames.try_lock() {
                            return frames.in_flight_call(&child.page.read().ok()?, shared.clock.now_ns());
                        }
                        sleep(FRAMES_LOCKED).await;
                    }
                });
                let (claim, call) = running_claim.await.ok()??;
                drop(frames); // a session that ends gives its calls back by dropping them
                let stack = child.stack(claim, &shared.worker_dir, within / 4 * 3).await;
                let location = Location::Worker(child.pid.as_raw_nonzero().get());
                // The requesting thread may have stopped waiting.
                answer.send(InFlight { call, location, stack: Stack::found(stack) }).ok()
            });
        }
    }

    /// Waits until the lane closes.
    pub(super) async fn closed(&self) {
        // An error means that the whole lane is gone.
        let _ = self.stage.clone().wait_for(|stage| *stage > LaneStage::Open).await;
    }

    pub(super) fn is_closing(&self) -> bool {
        *self.stage.borrow() > LaneStage::Open
    }

    /// Requests room for a worker of this pool from workers of other pools.
    pub(super) fn request_room(&self, pool: usize) -> RoomRequest {
        let request = self.give_way.ask(pool);
        self.slots.nudge_others(pool);
        request
    }

    /// Warns once that a pool runs with fewer workers than it may have.
    pub(super) fn report_narrow(&self, kind: SlotKind, workers: usize, why: &str) {
        if !self.reported_narrow.swap(true, Ordering::Relaxed) {
            let one = matches!(kind, SlotKind::Pinned | SlotKind::OwnZygote);
            let of = if one { 1 } else { self.config.workers.max(1) };
            let advice = descriptors::advice(why);
            self.printer.lane_line(&format!(
                "runs with {workers} of {of} workers, as another could not be started: {why}. {advice}. More are tried \
                 from time to time"
            ));
        }
    }

    /// The zygote that forks the workers of slots of this kind.
    pub(super) const fn zygote_of(&self, kind: SlotKind) -> &Zygote {
        if matches!(kind, SlotKind::OwnZygote) { &self.suspects_zygote } else { &self.zygote }
    }

    /// Fails a frame for which no worker can be started. If `itself` is set, only its calls fail,
    /// because other frames of its function may get a worker.
    pub(super) fn refuse(mut frame: Frame, why: String, itself: bool) {
        if !itself {
            frame.fail_setup(why, None);
            return;
        }
        frame.refuse(format!("{why}. It must have one to itself, as a zygote was lost under it"));
    }

    /// Counts a process as alive until the guard is dropped.
    pub(super) fn account(self: &Arc<Self>, pid: Pid) -> LiveProcess {
        let pid = pid.as_raw_nonzero().get();
        self.counts.forks.fetch_add(1, Ordering::Relaxed);
        let mut live = self.live.lock();
        live.insert(pid);
        self.alive.send_replace(live.len());
        LiveProcess { shared: self.clone(), pid }
    }

    pub(super) fn pids(&self) -> Vec<i32> {
        self.live.lock().iter().copied().collect()
    }

    /// Waits until no process is counted.
    pub(super) async fn all_ended(&self) {
        // The sender lives as long as this, so the wait can't fail.
        let _ = self.alive.subscribe().wait_for(|alive| *alive == 0).await;
    }
}

/// A process whose end was not seen yet.
pub(super) struct LiveProcess {
    shared: Arc<LaneState>,
    pid: i32,
}

impl Drop for LiveProcess {
    fn drop(&mut self) {
        let mut live = self.shared.live.lock();
        live.remove(&self.pid);
        self.shared.alive.send_replace(live.len());
    }
}

//! The process lane's implementation of `Lane`.

use std::num::NonZero;
use std::sync::atomic::Ordering;
use std::sync::mpsc::Sender;
use std::sync::{Arc, OnceLock};
use std::thread::available_parallelism;
use std::time::Duration;

use guerdon_core::clock::Clock;
use guerdon_core::frame::Frame;
use guerdon_core::function::{Function, FunctionId, Shape};
use guerdon_core::in_flight::InFlight;
use guerdon_core::lane::{CloseFuture, Lane, LaneWaker};
use parking_lot::Mutex;
use tokio::runtime::Handle;
use tokio::sync::watch;
use tokio::task::JoinHandle;
use tokio::time::timeout;

use crate::config::ProcessConfig;
use crate::descriptors;
use crate::lane_state::LaneState;
use crate::output::Printer;
use crate::slots::{DEPTH, Slots};
use crate::supervisor::supervise;
use crate::zygote::{Begin, LaneStage, Zygote};

/// Most bytes of a frame, which a socket takes without a pause.
const FRAME_BYTES: usize = 256 << 10;
/// Time in which the workers must end before the zygote ends them.
const WORKERS_END: Duration = Duration::from_millis(1500);

/// Runs calls in worker processes that can be killed.
pub struct ProcessLane {
    runtime: Handle,
    clock: Clock,
    functions: Vec<Function>,
    ours: Vec<bool>,
    config: Arc<ProcessConfig>,
    /// Number of frames that keep the cores, and one more worker, busy.
    frames_for_cores: usize,
    /// Written by `close`.
    stage: watch::Sender<LaneStage>,
    /// Set by `attach`.
    shared: OnceLock<Arc<LaneState>>,
    /// The supervisors of slots, then those of zygotes. Taken by `close`.
    tasks: Mutex<Vec<JoinHandle<()>>>,
}

/// Counters of the lane.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ProcessStats {
    /// Worker processes alive now.
    pub workers: u64,
    /// Workers forked since the start, including those of single calls.
    pub forks: u64,
    /// Workers that replaced another.
    pub restarts: u64,
    /// Workers that were killed: out of time, or for wrong messages.
    pub kills: u64,
    /// Workers that loaded the functions by themselves instead of being forked with them.
    pub loads: u64,
    /// Lines of output that were dropped.
    pub dropped_lines: u64,
}

impl ProcessLane {
    /// Makes a lane for those of the engine's functions whose `lane` is `index`. Its processes
    /// start when the scheduler attaches it.
    #[must_use]
    pub fn new(
        runtime: Handle,
        clock: Clock,
        functions: &[Function],
        index: usize,
        config: ProcessConfig,
    ) -> Arc<Self> {
        Arc::new(Self {
            runtime,
            clock,
            ours: functions.iter().map(|function| function.lane == index).collect(),
            functions: functions.to_vec(),
            config: Arc::new(config),
            frames_for_cores: DEPTH * (available_parallelism().map_or(1, NonZero::get) + 1),
            stage: watch::Sender::new(LaneStage::Open),
            shared: OnceLock::new(),
            tasks: Mutex::default(),
        })
    }

    #[must_use]
    pub fn stats(&self) -> ProcessStats {
        let Some(shared) = self.shared.get() else { return ProcessStats::default() };
        ProcessStats {
            workers: shared.pids().len() as u64,
            forks: shared.counts.forks.load(Ordering::Relaxed),
            restarts: shared.counts.restarts.load(Ordering::Relaxed),
            kills: shared.counts.kills.load(Ordering::Relaxed),
            loads: shared.zygote.loads() + shared.suspects_zygote.loads(),
            dropped_lines: shared.printer.dropped(),
        }
    }

    /// Worker processes alive now.
    #[must_use]
    pub fn worker_pids(&self) -> Vec<i32> {
        self.shared.get().map(|shared| shared.pids()).unwrap_or_default()
    }
}

impl Lane for ProcessLane {
    fn attach(&self, waker: LaneWaker) {
        let _context = self.runtime.enter();
        descriptors::raise_limit(self.config.workers);
        let ours = self.functions.iter().zip(&self.ours).filter(|(_, ours)| **ours).map(|(function, _)| function);
        let load_timeout = ours.map(|function| function.policy.setup_timeout).max().unwrap_or_default();
        let printer = Printer::start(self.config.sink.clone());
        let stage = self.stage.subscribe();
        let (places, new_slots) = Slots::new(self.config.workers.max(1), &self.functions, |id| self.ours[id]);
        let zygote = |forks_for_calls, begin| {
            let (config, printer, stage) = (self.config.clone(), printer.clone(), stage.clone());
            Zygote::start(config, load_timeout, forks_for_calls, printer, stage, begin)
        };
        let (suspects_zygote, suspects_supervisor) = zygote(false, Begin::WhenAsked);
        let (zygote, zygote_supervisor) = zygote(places.forks_ahead, Begin::AtOnce);
        let names = self.functions.iter().map(|function| function.name.clone()).collect();
        let shared = Arc::new(LaneState::new(
            self.config.clone(),
            self.clock,
            waker,
            zygote,
            suspects_zygote,
            printer,
            places,
            names,
            load_timeout,
            stage,
        ));
        let mut tasks = self.tasks.lock();
        if self.shared.set(shared.clone()).is_ok() {
            tasks.extend(
                new_slots.into_iter().map(|(slot, inbox)| tokio::spawn(supervise(shared.clone(), slot, inbox))),
            );
            tasks.extend([suspects_supervisor, zygote_supervisor]);
        }
    }

    fn room(&self, function: FunctionId) -> usize {
        match self.shared.get() {
            None => 0,
            Some(shared) => shared.slots.room(function),
        }
    }

    fn parallelism(&self, function: FunctionId) -> usize {
        self.shared.get().map_or(1, |shared| shared.slots.parallelism(function))
    }

    fn frames_for_cores(&self, function: FunctionId) -> usize {
        // A frame of one call waits for a fork, or until its output is counted.
        let waits = self.frame_calls(function) == 1;
        let fewer = !waits && self.frames_for_cores < self.parallelism(function);
        if fewer { self.frames_for_cores } else { usize::MAX }
    }

    fn pool(&self, function: FunctionId) -> usize {
        self.shared.get().map_or(0, |shared| shared.slots.pool(function))
    }

    fn frame_calls(&self, id: FunctionId) -> usize {
        let function = &self.functions[id];
        let alone = function.isolated || function.shape == Shape::Batch;
        if alone { 1 } else { self.config.frame_calls(id) }
    }

    fn frame_bytes(&self) -> usize {
        FRAME_BYTES
    }

    fn run(&self, frame: Frame) {
        // A frame before `attach` is dropped, and goes back to the scheduler.
        let Some(shared) = self.shared.get() else { return };
        shared.preload(&frame);
        let losses = shared.losses.losses(&frame);
        match shared.slots.broken(frame.function_id(), frame.alone(), losses) {
            Some(why) => LaneState::refuse(frame, why, losses > 0),
            None => shared.slots.put(frame, losses),
        }
    }

    fn complete_ended(&self) {
        if let Some(shared) = self.shared.get() {
            shared.complete_ended();
        }
    }

    fn ask_in_flight(&self, within: Duration, answer: &Sender<InFlight>) {
        if let Some(shared) = self.shared.get() {
            shared.ask_in_flight(&self.runtime, within, answer);
        }
    }

    fn counters(&self) -> Vec<(&'static str, u64)> {
        let ProcessStats { workers, restarts, loads, kills, .. } = self.stats();
        vec![("workers", workers), ("worker_restarts", restarts), ("worker_loads", loads), ("kills", kills)]
    }

    fn close(&self) -> CloseFuture {
        let stage = self.stage.clone();
        stage.send_if_modified(|stage| {
            *stage == LaneStage::Open && {
                *stage = LaneStage::Closing;
                true
            }
        });
        let tasks = std::mem::take(&mut *self.tasks.lock());
        let shared = self.shared.get().cloned();
        Box::pin(async move {
            if let Some(shared) = &shared {
                // The zygote ends the remaining workers then.
                let _ = timeout(WORKERS_END, shared.all_ended()).await;
            }
            stage.send_replace(LaneStage::Ended);
            for task in tasks {
                // After a panic of a supervisor the zygote ends its processes.
                let _ = task.await;
            }
            if let Some(shared) = &shared {
                shared.printer.last_words().await;
            }
        })
    }
}

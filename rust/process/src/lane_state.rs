//! What the supervisors of a lane's workers share.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use guerdon_core::clock::Clock;
use guerdon_core::frame::Frame;
use guerdon_core::lane::LaneWaker;
use parking_lot::Mutex;
use rustix::process::Pid;
use tokio::sync::watch;
use tokio::time::Instant;

use crate::config::ProcessConfig;
use crate::inspect::Inspector;
use crate::output::Printer;
use crate::slots::Slots;
use crate::zygote::{LaneStage, Zygote};

/// Workers that may end in a row before they are ready, and for how long, until calls fail with the
/// reason instead of waiting: a few may be killed one after another by whatever else goes on.
const START_FAILURES: u32 = 3;
const START_PATIENCE: Duration = Duration::from_secs(2);

pub(super) struct LaneState {
    pub config: Arc<ProcessConfig>,
    pub clock: Clock,
    pub waker: LaneWaker,
    pub zygote: Zygote,
    pub printer: Arc<Printer>,
    pub slots: Slots,
    pub names: Arc<[Arc<str>]>,
    /// The folder of the worker's code, which stacks leave out.
    pub worker_dir: String,
    /// Bounds the start of a worker that loads the functions itself.
    pub load_timeout: Duration,
    /// Written by `ProcessLane::close`.
    pub stage: watch::Receiver<LaneStage>,
    pub counts: Counts,
    /// The sessions that tell what their workers have in hand.
    pub inspector: Inspector,
    starts: Mutex<Starts>,
    /// Processes that have not been seen to end. Written by `LiveProcess`.
    live: Mutex<BTreeSet<i32>>,
    /// The size of `live`.
    alive: watch::Sender<usize>,
}

/// Counted since the lane started. Written by the supervisors.
#[derive(Default)]
pub(super) struct Counts {
    pub forks: AtomicU64,
    pub restarts: AtomicU64,
    pub kills: AtomicU64,
}

#[derive(Default)]
struct Starts {
    failures: u32,
    /// When the first of these failures was.
    since: Option<Instant>,
    /// Why no worker can be had.
    broken: Option<String>,
}

impl LaneState {
    #[expect(clippy::too_many_arguments, reason = "one caller, which makes each of them")]
    pub(super) fn new(
        config: Arc<ProcessConfig>,
        clock: Clock,
        waker: LaneWaker,
        zygote: Zygote,
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
            printer,
            slots,
            names,
            load_timeout,
            stage,
            counts: Counts::default(),
            inspector: Inspector::default(),
            starts: Mutex::default(),
            live: Mutex::default(),
            alive: watch::Sender::new(0),
        }
    }

    /// Waits until the lane closes.
    pub(super) async fn closed(&self) {
        // An error: the lane is gone altogether.
        let _ = self.stage.clone().wait_for(|stage| *stage > LaneStage::Open).await;
    }

    pub(super) fn is_closing(&self) -> bool {
        *self.stage.borrow() > LaneStage::Open
    }

    /// Notes that a worker is ready.
    pub(super) fn started(&self) {
        *self.starts.lock() = Starts::default();
    }

    /// Notes that a worker could not be had; how long to wait before the next try.
    pub(super) fn start_failed(&self, why: &str) -> Duration {
        let (wait, breaks) = {
            let mut starts = self.starts.lock();
            starts.failures = starts.failures.saturating_add(1);
            let since = *starts.since.get_or_insert_with(Instant::now);
            let breaks =
                starts.failures >= START_FAILURES && since.elapsed() >= START_PATIENCE && starts.broken.is_none();
            if breaks {
                starts.broken = Some(format!("no worker process could be started: {why}"));
            }
            // Until then no longer than that it is found out.
            let most = if starts.broken.is_some() { 7 } else { 5 };
            (Duration::from_millis(20 << starts.failures.min(most)), breaks)
        };
        if breaks {
            self.waker.wake(); // what waits for room fails now
        }
        wait
    }

    /// Why calls can't run at all, if so.
    pub(super) fn broken(&self) -> Option<String> {
        self.starts.lock().broken.clone()
    }

    /// Fails a frame for which there is no worker to be had.
    pub(super) fn refuse(mut frame: Frame, why: String) {
        frame.fail_setup(why, None);
    }

    /// Keeps account of a process until the guard is dropped.
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

    /// Waits until no process is accounted for.
    pub(super) async fn all_ended(&self) {
        // The sender is ours: no error.
        let _ = self.alive.subscribe().wait_for(|alive| *alive == 0).await;
    }
}

/// A process that has not been seen to end.
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

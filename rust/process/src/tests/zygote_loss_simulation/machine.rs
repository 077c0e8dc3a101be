//! Simulated processes: zygotes, loaders, and workers that run what a plan says.

use std::collections::{BTreeSet, VecDeque};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use guerdon_core::clock::Clock;
use guerdon_core::frame::Frame;
use guerdon_core::function::FunctionId;
use guerdon_core::lane::{CloseFuture, Lane, LaneWaker};
use guerdon_core::loss_ledger::{LossLedger, LossProgress};
use guerdon_core::outcome::Cell;
use parking_lot::Mutex;
use tokio::sync::Notify;
use tokio::sync::mpsc::UnboundedReceiver;
use tokio::time::sleep;

use super::plan::{MS, Plan, Target};
use crate::in_flight::{InFlightFrames, Loss};
use crate::shared_page::PageSnapshot;
use crate::slots::{QueuedFrame, Slot, SlotKind, SlotState, Slots, give_back};
use crate::wire::Message;

/// Time that `Parent::was_lost_alone` waits.
const SPREAD: Duration = Duration::from_millis(50);

/// A process, which ends with the one that forked it.
struct Process {
    above: Option<Arc<Process>>,
    dead: AtomicBool,
}

impl Process {
    fn new(above: Option<&Arc<Self>>) -> Arc<Self> {
        Arc::new(Self { above: above.cloned(), dead: AtomicBool::new(false) })
    }

    fn has_ended(&self) -> bool {
        self.dead.load(Ordering::Relaxed) || self.above.as_ref().is_some_and(|above| above.has_ended())
    }
}

/// A zygote, and the loader that it forked.
type Family = tokio::sync::Mutex<Option<(Arc<Process>, Arc<Process>)>>;

pub(super) struct Machine {
    plan: Plan,
    clock: Clock,
    shared: Family,
    of_suspects: Family,
    /// The zygote that is there, for who kills it from outside.
    now: Mutex<Option<Arc<Process>>>,
    died: Notify,
    /// Processes that were killed by calls.
    ended: AtomicUsize,
    /// Flaky calls that have died.
    have_died: Mutex<BTreeSet<usize>>,
    ledger: LossLedger<()>,
    waker: OnceLock<LaneWaker>,
}

impl Machine {
    pub(super) fn new(plan: &Plan, clock: Clock) -> Arc<Self> {
        Arc::new(Self {
            plan: plan.clone(),
            clock,
            shared: Family::default(),
            of_suspects: Family::default(),
            now: Mutex::default(),
            died: Notify::new(),
            ended: AtomicUsize::new(0),
            have_died: Mutex::default(),
            ledger: LossLedger::default(),
            waker: OnceLock::new(),
        })
    }

    /// Returns the number of processes that were killed by calls.
    pub(super) fn ended(&self) -> usize {
        self.ended.load(Ordering::Relaxed)
    }

    /// Kills the zygote from outside, as the plan says.
    pub(super) async fn kill_from_outside(self: Arc<Self>) {
        let mut kills = self.plan.kills.clone();
        kills.sort_unstable();
        let start = tokio::time::Instant::now();
        for at in kills {
            tokio::time::sleep_until(start + at).await;
            let zygote = self.now.lock().clone();
            if let Some(zygote) = zygote {
                self.kill(&zygote);
            }
        }
    }

    fn kill(&self, process: &Process) -> bool {
        let alive = !process.has_ended();
        process.dead.store(true, Ordering::Relaxed);
        self.died.notify_waiters();
        alive
    }

    async fn death(&self, process: &Process) {
        loop {
            let mut died = std::pin::pin!(self.died.notified());
            died.as_mut().enable();
            if process.has_ended() {
                return;
            }
            died.await;
        }
    }

    /// A worker, forked as the lane does for such a slot.
    async fn fork(&self, kind: SlotKind) -> Arc<Process> {
        let family = if kind == SlotKind::OwnZygote { &self.of_suspects } else { &self.shared };
        loop {
            let loader = {
                let mut family = family.lock().await;
                let zygote = match family.take() {
                    Some((zygote, loader)) if !loader.has_ended() => Some((zygote, loader)),
                    Some((zygote, _)) if !zygote.has_ended() => {
                        sleep(self.plan.load).await;
                        Some((zygote.clone(), Process::new(Some(&zygote))))
                    }
                    _ => {
                        sleep(20 * MS + self.plan.load).await;
                        let zygote = Process::new(None);
                        Some((zygote.clone(), Process::new(Some(&zygote))))
                    }
                };
                *family = zygote;
                sleep(2 * MS).await; // forks by one loader follow one another
                let Some((zygote, loader)) = &*family else { continue };
                if kind != SlotKind::OwnZygote {
                    *self.now.lock() = Some(zygote.clone());
                }
                loader.clone()
            };
            let parent = if kind == SlotKind::OwnLoader { Process::new(Some(&loader)) } else { loader };
            if !parent.has_ended() {
                return Process::new(Some(&parent));
            }
        }
    }

    /// A poison strikes from its worker.
    fn strike(&self, worker: &Process) {
        let above: Vec<&Arc<Process>> =
            std::iter::successors(worker.above.as_ref(), |one| one.above.as_ref()).collect();
        let struck = match self.plan.target {
            Target::Parent => 0,
            Target::Loader => above.len() - 2,
            Target::Zygote => above.len() - 1,
        };
        let hit = self.kill(above[struck]);
        self.ended.fetch_add(usize::from(hit), Ordering::Relaxed);
    }

    /// As `Session::standing`.
    async fn standing(&self, kind: SlotKind, worker: &Process) -> LossProgress {
        let alone = match kind {
            SlotKind::OwnZygote => true,
            SlotKind::OwnLoader => {
                sleep(SPREAD).await;
                let loader = worker.above.as_ref().and_then(|parent| parent.above.as_ref());
                !loader.is_some_and(|loader| loader.has_ended())
            }
            _ => false,
        };
        if alone { LossProgress::Apart } else { LossProgress::Next }
    }

    /// Runs a frame; whether the worker lives.
    async fn run(&self, kind: SlotKind, worker: &Process, held: QueuedFrame) -> bool {
        let samples: Vec<Vec<usize>> = (0..held.frame.len()).map(|call| held.frame.samples(call).collect()).collect();
        let mut flight = InFlightFrames::default();
        assert!(flight.send(held, None, self.clock.now_ns(), &mut Vec::new()).is_none());
        let (id, calls) = (flight.last_id(), samples.len());
        let (mut values, mut times) = (Vec::new(), vec![self.clock.now_ns()]);
        for of in &samples {
            let poisonous = of.iter().any(|sample| self.plan.poisons.contains(sample));
            let mut draws = fastrand::Rng::with_seed(self.plan.seed ^ of[0] as u64);
            let takes = if poisonous { self.plan.deadly_after } else { self.plan.longest.mul_f64(draws.f64().powi(2)) };
            let flaky =
                of.iter().any(|sample| self.plan.flaky.contains(sample) && self.have_died.lock().insert(*sample));
            let loss = tokio::select! {
                biased;
                () = self.death(worker) => Some(Loss::Zygote(LossProgress::Next)),
                () = sleep(takes) => if flaky {
                    Some(Loss::Crashed("died".to_owned(), None, false))
                } else if poisonous {
                    self.strike(worker);
                    Some(Loss::Zygote(LossProgress::Next))
                } else {
                    None
                },
            };
            if let Some(mut loss) = loss {
                if let Loss::Zygote(standing) = &mut loss {
                    *standing = self.standing(kind, worker).await;
                }
                let page = PageSnapshot::after(id, &values, &times, false);
                drop(flight.lose(&page, &loss, &self.ledger, self.clock.now_ns()));
                return false;
            }
            values.push(of[0] as f64);
            times.push(self.clock.now_ns());
            if self.plan.gathered {
                let cells = of.iter().map(|sample| Cell::Value(*sample as f64)).collect();
                let taken = flight.take(Message::Cells { frame: id, call: 0, cells }, || None, self.clock.now_ns());
                assert!(taken.is_ok());
            }
        }
        let page = || Some(PageSnapshot::after(id, &values, &times, true));
        let taken = flight.take(Message::Done { frame: id, ran: calls, retire: false }, page, self.clock.now_ns());
        assert!(taken.is_ok());
        drop(flight.pop());
        !kind.is_single()
    }

    /// The supervisor of a slot.
    pub(super) async fn serve(self: Arc<Self>, slot: Arc<Slot>, mut inbox: UnboundedReceiver<QueuedFrame>) {
        let mut worker: Option<Arc<Process>> = None;
        while let Some(held) = inbox.recv().await {
            let process = match worker.take() {
                Some(process) if !process.has_ended() => process,
                _ => self.fork(slot.kind).await,
            };
            if self.run(slot.kind, &process, held).await {
                worker = Some(process);
            } else if slot.kind == SlotKind::Pool {
                slot.set(SlotState::Closed);
                give_back(&mut inbox, &mut VecDeque::new());
                worker = Some(self.fork(slot.kind).await);
                slot.set(SlotState::Ready);
                if let Some(waker) = self.waker.get() {
                    waker.wake();
                }
            }
        }
    }
}

/// The lane, as the scheduler sees it.
pub(super) struct SimulatedLane(pub(super) Slots, pub(super) Arc<Machine>);

impl Lane for SimulatedLane {
    fn attach(&self, waker: LaneWaker) {
        let _ = self.1.waker.set(waker); // attached once
    }

    fn room(&self, function: FunctionId) -> usize {
        self.0.room(function)
    }

    fn parallelism(&self, function: FunctionId) -> usize {
        self.0.parallelism(function)
    }

    fn pool(&self, function: FunctionId) -> usize {
        self.0.pool(function)
    }

    fn frame_calls(&self, _: FunctionId) -> usize {
        if self.1.plan.isolated { 1 } else { 5 }
    }

    fn run(&self, frame: Frame) {
        let losses = self.1.ledger.losses(&frame);
        self.0.put(frame, losses);
    }

    fn close(&self) -> CloseFuture {
        Box::pin(std::future::ready(()))
    }
}

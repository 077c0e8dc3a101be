//! One worker, from its fork to its end: frames to it, answers from it, and the watch on its calls.
//!
//! - Messages are processed before any conclusion is drawn from the page or the end of the process.
//! - A worker from which frames were taken back gets no new one before it has answered for all of
//!   them.
//! - A frame of a function with `max_output` is alone with its worker.
//! - A worker that sends without end delays nothing: due checks come first, and reading is bounded.
//!   Periodic checks stop while the worker holds no frame.

mod check;
mod end;
mod pending;
mod stack;

use std::collections::{BTreeSet, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::sync::mpsc;
use tokio::task::coop::consume_budget;
use tokio::time::{Instant, timeout};

use guerdon_core::frame::Frame;
use guerdon_core::function::FunctionId;
use guerdon_core::tracer::{Executor, Moment};
use pending::{PendingReturn, StackAnswer};

use crate::call_watch::{CallWatch, LATE, TICK};
use crate::child::DYING;
use crate::child::ForkedWorker;
use crate::in_flight::{InFlightFrames, Loss, Update};
use crate::lane_state::LaneState;
use crate::output_meter::OutputMeter;
use crate::pool_starts::Start;
use crate::slots::{QueuedFrame, Slot, SlotKind, SlotState, give_back};
use crate::wire;
use crate::worker_process::WorkerProcess;
use crate::worker_socket::{ReadMode, WorkerSocket};
use crate::zygote::Fork;

/// Time that a forked worker has to report ready, beyond the time for loading.
const START: Duration = Duration::from_secs(20);
/// Most reads in a row, after which all earlier bytes of the socket have been read: either a read
/// emptied it, or the reads took more than a socket can hold.
const READS: u32 = 256;
/// Interval of checks on a worker's memory.
const WEIGH: Duration = Duration::from_secs(1);

/// Why a session ended.
pub(super) enum SessionEnd {
    /// The worker ended or was killed before it was ready.
    NeverReady { why: String, died: bool },
    /// The worker was killed with the process that forked it, before it was ready. It can't have
    /// caused that.
    LostWithZygote,
    /// It did its work; the slot needs another worker, which may have been requested.
    Over(Option<Fork>),
    /// It left to make room for another pool's worker.
    MadeRoom,
    /// The lane closes.
    Closing,
}

/// Event of the session's loop.
enum SessionEvent {
    Dead,
    Kill(Loss),
    /// It ends by itself, or will when it has read `CLOSE`.
    Retire {
        ask: bool,
    },
    Closing,
}

impl SessionEvent {
    /// Returns the event's name for the log.
    const fn name(&self) -> &'static str {
        match self {
            Self::Dead => "dead",
            Self::Kill(_) => "killed",
            Self::Retire { .. } => "retired",
            Self::Closing => "closing",
        }
    }

    /// The worker is unusable; `why` follows "the worker process".
    fn kill(why: impl Into<String>) -> Self {
        Self::Kill(Loss::Crashed(why.into(), None, false))
    }
}

/// A session of a worker in a slot.
pub(super) struct Session {
    shared: Arc<LaneState>,
    slot: Arc<Slot>,
    process: WorkerProcess,
    /// Counts the worker as a process of its pool.
    start: Start,
    socket: WorkerSocket,
    /// Other threads also complete the ended calls here.
    in_flight: Arc<Mutex<InFlightFrames>>,
    watch: CallWatch,
    ready: bool,
    taking: Option<PendingReturn>,
    stack_answer: Option<StackAnswer>,
    /// The progress word at the last check.
    last_claim: u64,
    output_meter: OutputMeter,
    /// Functions whose part of the environment was sent to the worker.
    given: BTreeSet<FunctionId>,
    calls: u64,
    born: Instant,
    /// The successor of this worker, which only finishes its frames.
    successor: Option<Fork>,
    /// True if the next frame would exceed the worker's number of calls.
    full: bool,
    /// True if it leaves to make room for another pool's worker.
    makes_room: bool,
    /// The time when its connection was found closed.
    disconnected_ns: Option<u64>,
    /// True if it has too much memory, and the time of the last check.
    heavy: bool,
    weighed: Instant,
}

impl Session {
    pub(super) fn new(shared: Arc<LaneState>, slot: Arc<Slot>, forked: ForkedWorker) -> Self {
        let ForkedWorker { child, socket, output } = forked;
        let process = WorkerProcess::new(&shared, shared.zygote_of(slot.kind).clone(), child, output);
        Self {
            in_flight: shared.sessions.open(&process.child),
            process,
            start: slot.starts.started(slot.index),
            shared,
            slot,
            socket: WorkerSocket::new(socket),
            watch: CallWatch::default(),
            ready: false,
            taking: None,
            stack_answer: None,
            last_claim: 0,
            output_meter: OutputMeter::default(),
            given: BTreeSet::new(),
            calls: 0,
            born: Instant::now(),
            successor: None,
            full: false,
            makes_room: false,
            disconnected_ns: None,
            heavy: false,
            weighed: Instant::now(),
        }
    }

    /// Serves the slot's frames until the worker's end.
    pub(super) async fn serve(
        mut self,
        inbox: &mut mpsc::UnboundedReceiver<QueuedFrame>,
        waiting: &mut VecDeque<QueuedFrame>,
    ) -> SessionEnd {
        let event = self.turns(inbox, waiting).await;
        self.slot.set(SlotState::Closed);
        self.end(event).await
    }

    async fn turns(
        &mut self,
        inbox: &mut mpsc::UnboundedReceiver<QueuedFrame>,
        waiting: &mut VecDeque<QueuedFrame>,
    ) -> SessionEvent {
        let timer = tokio::time::sleep(LATE);
        tokio::pin!(timer);
        let mut armed = true;
        let mut used = false;
        loop {
            if self.socket.has_ended() {
                self.disconnected_ns = Some(self.shared.clock.now_ns());
                // If a function closed the socket, the worker ends itself after the running call:
                // no call behind it may begin.
                let _ = self.process.child.page.take_back(self.in_flight.lock().last_id());
                // The socket of an ending process closes a moment before its end is visible.
                return match timeout(DYING, self.process.child.pidfd.ended()).await {
                    Ok(()) => SessionEvent::Dead,
                    // The kernel is slow to kill all children.
                    Err(_) if self.process.child.parent.has_ended() => SessionEvent::Dead,
                    Err(_) => SessionEvent::kill("closed its connection to the engine"),
                };
            }
            let unused = self.slot.kind.is_of_suspects() && self.ready && waiting.is_empty() && inbox.is_empty();
            let over = self.is_over(used) || unused;
            if self.ready && !over {
                if self.slot.set(SlotState::Ready) != SlotState::Ready {
                    self.shared.waker.wake(); // calls of its last frame went to others
                }
            } else {
                self.slot.set(SlotState::Closed);
            }
            if over && self.successor.is_none() && self.has_successor() {
                self.successor = Some(self.shared.zygote.fork());
            }
            if over && self.in_flight.lock().is_empty() {
                return SessionEvent::Retire { ask: true };
            }
            let stalled = self.slot.kind == SlotKind::Pool && (self.taking.is_some() || over);
            if stalled {
                waiting.clear(); // the scheduler has other workers for them
            }
            let takes = self.ready
                && !over
                && self.taking.is_none()
                && self.in_flight.lock().len() < self.slot.depth()
                && self.may_send(waiting.front());
            if takes && let Some(held) = waiting.pop_front() {
                used |= self.send(held);
                continue;
            }
            if self.ready && !self.in_flight.lock().is_empty() && !armed {
                timer.as_mut().reset(Instant::now() + TICK);
                armed = true;
            }
            let news = tokio::select! {
                biased;
                () = self.shared.closed() => return SessionEvent::Closing,
                () = self.slot.nudge.notified() => {
                    if self.ready {
                        self.makes_room |= self.can_make_room();
                    } else {
                        give_back(inbox, waiting);
                    }
                    continue;
                }
                () = &mut timer, if armed => {
                    armed = false;
                    if !self.ready {
                        if self.born.elapsed() >= self.shared.load_timeout + START {
                            return SessionEvent::kill("was not ready in time");
                        }
                        if self.process.child.is_stopped() {
                            return SessionEvent::kill("was stopped by a signal");
                        }
                        timer.as_mut().reset(Instant::now() + LATE);
                        armed = true;
                        continue;
                    }
                    if self.in_flight.lock().is_empty() {
                        continue;
                    }
                    match self.check() {
                        Ok(wake_ns) => {
                            let wait = wake_ns.saturating_sub(self.shared.clock.now_ns());
                            timer.as_mut().reset(Instant::now() + Duration::from_nanos(wait));
                            armed = true;
                            continue;
                        }
                        Err(turn) => return turn,
                    }
                }
                () = self.socket.readable() => self.receive(ReadMode::Announced),
                () = self.process.child.pidfd.ended() => return SessionEvent::Dead,
                () = self.socket.writable(), if self.socket.has_unsent() => {
                    self.flush();
                    continue;
                }
                held = inbox.recv(), if takes || stalled => {
                    match held {
                        // Given back, because the scheduler has other workers for it.
                        Some(held) if stalled => drop(held),
                        Some(held) if !self.may_send(Some(&held)) => waiting.push_back(held),
                        Some(held) => used |= self.send(held),
                        None => return SessionEvent::Closing,
                    }
                    continue;
                }
            };
            match news {
                Ok(true) => return SessionEvent::Retire { ask: false },
                Ok(false) => {
                    if self.ready && armed && self.in_flight.lock().is_empty() && self.calls == 0 {
                        armed = false; // the bound on its start has passed
                    }
                    consume_budget().await; // other tasks need the thread too
                }
                Err(turn) => return turn,
            }
        }
    }

    /// Returns whether the worker gets no more frames.
    fn is_over(&self, used: bool) -> bool {
        let config = &self.shared.config;
        match self.slot.kind {
            _ if self.makes_room => true,
            kind if kind.is_single() => used,
            SlotKind::Pool => {
                let due = || config.recycle.is_due(self.sent_calls(), self.born.elapsed());
                self.full || self.heavy || (self.ready && due())
            }
            _ => false,
        }
    }

    /// Returns whether another worker follows this one at once.
    fn has_successor(&self) -> bool {
        let wanted = match self.slot.kind {
            SlotKind::Pool => true,
            // If each call has a fresh worker, the next one starts before its call comes.
            SlotKind::Alone => self.shared.slots.forks_ahead && !self.slot.starts.is_narrow(),
            SlotKind::Pinned | SlotKind::OwnLoader | SlotKind::OwnZygote => false,
        };
        wanted && !self.makes_room
    }

    /// Accepts another pool's request for room, unless the function is pinned: its worker keeps
    /// state.
    fn can_make_room(&self) -> bool {
        // A worker whose successor was requested does not leave either.
        let may = self.slot.kind != SlotKind::Pinned && !self.makes_room && self.successor.is_none();
        may && self.shared.give_way.accept(self.slot.pool)
    }

    /// Returns whether a frame (or any frame, without one) may be sent in addition to the worker's
    /// frames.
    fn may_send(&self, next: Option<&QueuedFrame>) -> bool {
        let metered = |frame: &Frame| self.shared.is_metered(frame.function_id());
        let in_flight = self.in_flight.lock();
        let alone = in_flight.front().is_some_and(metered);
        in_flight.is_empty() || !(alone || next.is_some_and(|held| metered(&held.frame)))
    }

    /// Sends a frame, unless its outcome is not needed any more; true if it was sent.
    fn send(&mut self, mut held: QueuedFrame) -> bool {
        let frame = &mut held.frame;
        if !(0..frame.len()).any(|call| frame.is_open(call)) {
            return false;
        }
        let recycle = &self.shared.config.recycle;
        if self.slot.kind == SlotKind::Pool && !recycle.has_room(self.sent_calls(), frame.len() as u64) {
            self.full = true;
            self.slot.set(SlotState::Closed);
            return false;
        }
        self.give_environment(frame);
        let limits = self.shared.config.limits_of(frame.function_id());
        self.output_meter.sent(limits.max_output, || self.process.printed());
        frame.set_executor(|| Executor::Worker(self.slot.index));
        let now_ns = self.shared.clock.now_ns();
        let unsent = self.in_flight.lock().send(held, limits.memory_limit, now_ns, self.socket.outgoing());
        self.flush();
        let Some(QueuedFrame { guard, mut frame }) = unsent else { return true };
        drop(guard);
        frame.refuse(Frame::UNWRITTEN.to_owned());
        false
    }

    /// Number of calls that the worker ran or runs.
    fn sent_calls(&self) -> u64 {
        self.calls + self.in_flight.lock().calls() as u64
    }

    /// Sends a function's part of the environment, before its first frame.
    fn give_environment(&mut self, frame: &Frame) {
        let variables = &self.shared.config.limits_of(frame.function_id()).environment;
        if !variables.is_empty() && self.given.insert(frame.function_id()) {
            wire::environment(frame.function_id(), variables, self.socket.outgoing());
        }
    }

    fn flush(&mut self) {
        if self.socket.flush() {
            self.watch.restart_silence(); // it reads, and a large frame takes time
        }
    }

    /// Reads the arrived bytes and acts on them; true when the worker retires.
    fn receive(&mut self, how: ReadMode) -> Result<bool, SessionEvent> {
        let mut left = READS;
        while left > 0 && self.socket.read(how) {
            left -= 1;
            loop {
                let message = match self.socket.next() {
                    Ok(Some(message)) => message,
                    Ok(None) => break,
                    Err(error) => return Err(SessionEvent::kill(format!("was killed: it sent {error}"))),
                };
                self.judge_output(&message);
                let page = || self.process.child.page.read().ok();
                let Ok(news) = self.in_flight.lock().take(message, page, self.shared.clock.now_ns()) else {
                    return Err(SessionEvent::kill("was killed: it sent a message about a call that it does not run"));
                };
                if self.act_on(news) {
                    return Ok(true);
                }
            }
        }
        Ok(false)
    }

    fn act_on(&mut self, news: Update) -> bool {
        if (news.ready && !self.ready) || news.ended.is_some() {
            self.watch.restart_silence();
        }
        if news.ready && !self.ready {
            self.ready = true;
            self.born = Instant::now(); // its age excludes loading, which may take long
            self.slot.set_stalled(false);
            self.start.ready();
            self.shared.moment(Moment::WorkerReady, &self.slot, String::new);
            self.slot.set(SlotState::Ready);
            self.shared.waker.wake();
            self.shared.slots.let_one_go(&self.slot);
        }
        if let Some(ran) = news.ended {
            self.calls += ran as u64;
            self.weigh();
            if self.in_flight.lock().len() == 1 {
                self.taking = None;
                self.slot.set_stalled(false);
            }
            if news.retire {
                self.slot.set(SlotState::Closed);
            }
            let ended = self.in_flight.lock().pop();
            drop(ended);
            if !news.retire {
                self.shared.slots.let_one_go(&self.slot);
            }
        }
        news.retire
    }

    /// Checks the worker's memory at intervals, if there is a bound.
    fn weigh(&mut self) {
        if let Some(most) = self.shared.config.recycle.rss
            && self.weighed.elapsed() >= WEIGH
        {
            self.weighed = Instant::now();
            self.heavy = self.process.resident_bytes().is_some_and(|bytes| bytes > most);
        }
    }
}

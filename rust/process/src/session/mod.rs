//! One worker, from its fork to its end: frames to it, answers from it, and an eye on what it has in hand.
//!
//! - N-1  Messages are taken in before anything is concluded from the page or from the end of the process.
//! - N-2  Nothing ticks while the worker holds no frame.
//! - N-3  A worker from which frames were taken back gets no new one before it has answered for all of them.
//! - N-4  However a worker ends, what it held is settled or given back before its slot gets another.
//! - N-5  A frame of a function with `max_output` is sent to a worker that holds no other, and no other to a worker that holds one (`meter`).
//! - N-6  A worker that talks without end keeps nothing from being done: looks that are due come first, and reading is bounded.

mod check;
mod end;
mod stack;

use std::collections::{BTreeSet, VecDeque};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use tokio::sync::mpsc;
use tokio::task::coop::consume_budget;
use tokio::time::{Instant, timeout};

use crate::child::DYING;
use crate::child::Forked;
use crate::in_flight::{Flight, Loss, News};
use crate::inspect::Window;
use crate::lane_state::Shared;
use crate::link::{Link, Read};
use crate::output_meter::Meter;
use crate::slots::{Held, Kind, Slot};
use crate::watchdog::{LATE, TICK, Watch};
use crate::wire;
use crate::worker_process::Body;
use crate::zygote::Fork;
use check::Taking;
use guerdon_core::frame::Frame;
use guerdon_core::function::FunctionId;
use stack::Asked;

/// How long a forked worker may take to say ready, beyond what loading may take.
const START: Duration = Duration::from_secs(20);
/// Most reads in a row. After so many whatever was in the socket before them has been read: either one of them emptied it, or they were as full as
/// no socket is.
const READS: u32 = 256;
/// Time between two looks at a worker's memory.
const WEIGH: Duration = Duration::from_secs(1);

/// Why a session ended.
pub(super) enum End {
    /// The worker ended or was killed before it was ready.
    NeverReady(String),
    /// It did its work; the slot needs another worker, which may have been asked for.
    Over(Option<Fork>),
    /// The lane closes.
    Closing,
}

/// What the loop found.
enum Turn {
    Dead,
    Kill(Loss),
    /// It goes by itself, or shall when it has read `CLOSE`.
    Leave {
        ask: bool,
    },
    Closing,
}

impl Turn {
    /// It is of no use any more; the words follow "the worker process".
    fn kill(why: impl Into<String>) -> Self {
        Self::Kill(Loss::Crashed(why.into(), None))
    }
}

/// A worker in a slot.
pub(super) struct Session {
    shared: Arc<Shared>,
    slot: Arc<Slot>,
    body: Body,
    link: Link,
    flight: Flight,
    watch: Watch,
    /// Where it is asked what the worker has in hand.
    window: Window,
    ready: bool,
    taking: Option<Taking>,
    asked: Option<Asked>,
    /// The progress word at the last look.
    last_claim: u64,
    meter: Meter,
    /// Functions whose part of the environment the worker has.
    given: BTreeSet<FunctionId>,
    calls: u64,
    born: Instant,
    /// The worker that will follow this one, which is only finishing what it has.
    successor: Option<Fork>,
    /// The next frame would be more calls than it shall run.
    full: bool,
    /// When its connection was seen to be closed.
    cut_ns: Option<u64>,
    /// Whether it took too much memory, and when that was looked at.
    heavy: bool,
    weighed: Instant,
}

impl Session {
    pub(super) fn new(shared: Arc<Shared>, slot: Arc<Slot>, forked: Forked) -> Self {
        let Forked { child, socket, output } = forked;
        Self {
            window: shared.windows.open(child.pid.as_raw_nonzero().get()),
            body: Body::new(shared.clone(), child, output),
            shared,
            slot,
            link: Link::new(socket),
            flight: Flight::default(),
            watch: Watch::default(),
            ready: false,
            taking: None,
            asked: None,
            last_claim: 0,
            meter: Meter::default(),
            given: BTreeSet::new(),
            calls: 0,
            born: Instant::now(),
            successor: None,
            full: false,
            cut_ns: None,
            heavy: false,
            weighed: Instant::now(),
        }
    }

    /// Serves the slot's frames until the worker's end.
    pub(super) async fn serve(
        mut self,
        inbox: &mut mpsc::UnboundedReceiver<Held>,
        waiting: &mut VecDeque<Held>,
    ) -> End {
        let turn = self.turns(inbox, waiting).await;
        self.slot.ready.store(false, Ordering::Release);
        self.end(turn).await
    }

    async fn turns(&mut self, inbox: &mut mpsc::UnboundedReceiver<Held>, waiting: &mut VecDeque<Held>) -> Turn {
        let timer = tokio::time::sleep(LATE);
        tokio::pin!(timer);
        let mut armed = true;
        let mut used = false;
        loop {
            if self.link.has_ended() {
                self.cut_ns = Some(self.shared.clock.now_ns());
                // If a function closed it, the worker ends itself after the call in hand: none behind that shall begin.
                let _ = self.body.child.page.take_back(self.flight.last_id());
                // The end of the process closes its socket a moment before it is seen.
                return match timeout(DYING, self.body.child.pidfd.ended()).await {
                    Ok(()) => Turn::Dead,
                    Err(_) => Turn::kill("closed its connection to the engine"),
                };
            }
            let over = self.is_over(used);
            if self.slot.kind == Kind::Pool {
                let serves = self.ready && !over;
                if serves && !self.slot.ready.swap(true, Ordering::AcqRel) {
                    self.shared.waker.wake(); // calls of its last frame went to others
                } else if !serves {
                    self.slot.ready.store(false, Ordering::Release);
                }
            }
            if over && self.successor.is_none() && self.slot.kind == Kind::Pool {
                self.successor = Some(self.shared.zygote.fork());
            }
            if over && self.flight.is_empty() {
                return Turn::Leave { ask: true };
            }
            let stalled = self.slot.kind == Kind::Pool && (self.taking.is_some() || over);
            if stalled {
                waiting.clear(); // the scheduler has others for it
            }
            let takes = self.ready
                && !over
                && self.taking.is_none()
                && self.flight.len() < self.slot.depth()
                && self.may_send(waiting.front());
            if takes && let Some(held) = waiting.pop_front() {
                used |= self.send(held);
                continue;
            }
            if self.ready && !self.flight.is_empty() && !armed {
                timer.as_mut().reset(Instant::now() + TICK);
                armed = true;
            }
            let news = tokio::select! {
                biased;
                () = self.shared.closed() => return Turn::Closing,
                ask = self.window.asked() => {
                    self.answer(ask);
                    continue;
                }
                () = &mut timer, if armed => {
                    armed = false;
                    if !self.ready {
                        if self.born.elapsed() >= self.shared.load_timeout + START {
                            return Turn::kill("was not ready in time");
                        }
                        if self.body.child.is_stopped() {
                            return Turn::kill("was stopped by a signal");
                        }
                        timer.as_mut().reset(Instant::now() + LATE);
                        armed = true;
                        continue;
                    }
                    if self.flight.is_empty() {
                        continue; // N-2
                    }
                    match self.look() {
                        Ok(wake_ns) => {
                            let wait = wake_ns.saturating_sub(self.shared.clock.now_ns());
                            timer.as_mut().reset(Instant::now() + Duration::from_nanos(wait));
                            armed = true;
                            continue;
                        }
                        Err(turn) => return turn,
                    }
                }
                () = self.link.readable() => self.receive(Read::Announced),
                () = self.body.child.pidfd.ended() => return Turn::Dead,
                () = self.link.writable(), if self.link.has_unsent() => {
                    self.flush();
                    continue;
                }
                held = inbox.recv(), if takes || stalled => {
                    match held {
                        // Given back: the scheduler has others for it.
                        Some(held) if stalled => drop(held),
                        Some(held) if !self.may_send(Some(&held)) => waiting.push_back(held),
                        Some(held) => used |= self.send(held),
                        None => return Turn::Closing,
                    }
                    continue;
                }
            };
            match news {
                Ok(true) => return Turn::Leave { ask: false },
                Ok(false) => {
                    if self.ready && armed && self.flight.is_empty() && self.calls == 0 {
                        armed = false; // the bound on its start
                    }
                    consume_budget().await; // N-6: others need the thread too
                }
                Err(turn) => return turn,
            }
        }
    }

    /// Whether the worker shall get no more frames.
    fn is_over(&self, used: bool) -> bool {
        let config = &self.shared.config;
        match self.slot.kind {
            Kind::Alone => used,
            Kind::Pinned => false,
            Kind::Pool => self.full || self.heavy || config.recycle.is_due(self.sent_calls(), self.born.elapsed()),
        }
    }

    /// Whether a frame, or else any frame, may be sent beside what the worker holds (N-5).
    fn may_send(&self, next: Option<&Held>) -> bool {
        let metered = |frame: &Frame| self.shared.config.limits_of(frame.function_id()).max_output.is_some();
        let alone = self.flight.front().is_some_and(metered);
        self.flight.is_empty() || !(alone || next.is_some_and(|held| metered(&held.frame)))
    }

    /// Sends a frame, unless nobody waits for any of it; whether it did.
    fn send(&mut self, held: Held) -> bool {
        let Held { place, frame } = held;
        if !(0..frame.len()).any(|call| frame.is_open(call)) {
            drop(place); // before the frame: the scheduler looks for room once, when that is dropped (lane.rs L-7)
            drop(frame);
            return false;
        }
        let recycle = &self.shared.config.recycle;
        if self.slot.kind == Kind::Pool && !recycle.has_room(self.sent_calls(), frame.len() as u64) {
            self.full = true;
            self.slot.ready.store(false, Ordering::Release);
            drop(place);
            drop(frame);
            return false;
        }
        self.give_environment(&frame);
        let limits = self.shared.config.limits_of(frame.function_id());
        self.meter.sent(limits.max_output, || self.body.printed());
        self.flight.send(frame, place, limits.memory_limit, self.shared.clock.now_ns(), self.link.outgoing());
        self.flush();
        true
    }

    /// Calls that the worker ran or has in hand.
    fn sent_calls(&self) -> u64 {
        self.calls + self.flight.calls() as u64
    }

    /// Sends the function its part of the environment, before its first frame.
    fn give_environment(&mut self, frame: &Frame) {
        let variables = &self.shared.config.limits_of(frame.function_id()).environment;
        if !variables.is_empty() && self.given.insert(frame.function_id()) {
            wire::environment(frame.function_id(), variables, self.link.outgoing());
        }
    }

    fn flush(&mut self) {
        if self.link.flush() {
            self.watch.heard(); // it reads: a large frame takes its time
        }
    }

    /// Reads what has come and acts on it; true when the worker retires.
    fn receive(&mut self, how: Read) -> Result<bool, Turn> {
        let mut left = READS; // N-6
        while left > 0 && self.link.read(how) {
            left -= 1;
            loop {
                let message = match self.link.next() {
                    Ok(Some(message)) => message,
                    Ok(None) => break,
                    Err(error) => return Err(Turn::kill(format!("was ended: it sent {error}"))),
                };
                self.judge_output(&message);
                let page = || self.body.child.page.read().ok();
                let Ok(news) = self.flight.take(message, page, self.shared.clock.now_ns()) else {
                    return Err(Turn::kill("was ended: it sent a message about a call that it does not have"));
                };
                if self.act_on(news) {
                    return Ok(true);
                }
            }
        }
        Ok(false)
    }

    fn act_on(&mut self, news: News) -> bool {
        if (news.ready && !self.ready) || news.ended.is_some() {
            self.watch.heard();
        }
        if news.ready && !self.ready {
            self.ready = true;
            self.slot.stalled.store(false, Ordering::Release);
            self.slot.ready.store(true, Ordering::Release);
            self.shared.started();
            self.shared.waker.wake();
        }
        if let Some(ran) = news.ended {
            self.calls += ran as u64;
            self.weigh();
            if self.flight.len() == 1 {
                self.taking = None; // N-3
                self.slot.stalled.store(false, Ordering::Release);
            }
            if news.retire {
                self.slot.ready.store(false, Ordering::Release);
            }
            let ended = self.flight.pop();
            drop(ended);
        }
        news.retire
    }

    /// Looks at the worker's memory, once in a while, if that matters.
    fn weigh(&mut self) {
        if let Some(most) = self.shared.config.recycle.rss
            && self.weighed.elapsed() >= WEIGH
        {
            self.weighed = Instant::now();
            self.heavy = self.body.resident_bytes().is_some_and(|bytes| bytes > most);
        }
    }
}

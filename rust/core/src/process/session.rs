//! One worker, from its fork to its end: frames to it, answers from it, and an eye on what it has in hand.
//!
//! - N-1  Messages are taken in before anything is concluded from the page or from the end of the process.
//! - N-2  Nothing ticks while the worker holds no frame.
//! - N-3  A worker from which frames were taken back gets no new one before it has answered for all of them.
//! - N-4  However a worker ends, its process group is killed, its pipe read and its process reaped.

use std::collections::VecDeque;
use std::io;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use rustix::net::RecvFlags;
use rustix::process::{Pid, Signal};
use tokio::sync::{Notify, mpsc};
use tokio::task::JoinHandle;
use tokio::time::{Instant, timeout};

use super::child::Child;
use super::ending::Ending;
use super::flight::{Flight, Loss, News};
use super::output::{self, Source};
use super::page::Snapshot;
use super::places::{Held, Kind, Slot};
use super::shared::{Live, Shared};
use super::watch::{Order, TICK, Watch};
use super::wire::{self, Parser};
use super::zygote::Fork;
use crate::clock::nanos;

/// How long a forked worker may take to say ready, beyond what loading may take.
const START: Duration = Duration::from_secs(20);
/// How long a worker may take to close its functions, and when it is told to amid work.
const FAREWELL: Duration = Duration::from_secs(1);
const FAREWELL_BUSY: Duration = Duration::from_millis(200);
/// How long the end of a process may take once its socket is closed or it was killed.
const DYING: Duration = Duration::from_millis(500);
/// How long to wait for the zygote to say how a worker ended.
const ASK: Duration = Duration::from_secs(1);

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

/// How to read the worker's socket.
#[derive(Clone, Copy)]
enum Read {
    /// What the runtime said is there.
    Announced,
    /// Whatever is there: what the runtime was not told of yet, too (N-1).
    All,
}

/// A worker in a slot.
pub(super) struct Session {
    shared: Arc<Shared>,
    slot: Arc<Slot>,
    child: Child,
    live: Live,
    source: Arc<Source>,
    output_ended: Arc<Notify>,
    /// Reads the worker's output.
    reader: JoinHandle<()>,
    parser: Parser,
    flight: Flight,
    watch: Watch,
    /// Bytes for the worker that its socket did not take yet, and how many of them it has.
    unsent: Vec<u8>,
    sent: usize,
    ready: bool,
    /// The worker's socket is at its end.
    silent: bool,
    taking: Option<Taking>,
    /// The progress word at the last look.
    last_claim: u64,
    calls: u64,
    born: Instant,
    /// The process was waited for, and its output read.
    reaped: bool,
    /// The worker that will follow this one, which is only finishing what it has.
    successor: Option<Fork>,
    /// Whether it took too much memory, and when that was looked at.
    heavy: bool,
    weighed: Instant,
}

/// Frames are being taken back.
struct Taking {
    asked_ns: u64,
    collected: bool,
}

impl Session {
    pub(super) fn new(shared: Arc<Shared>, slot: Arc<Slot>, mut child: Child) -> io::Result<Self> {
        let (spare, _) = output::pipe()?;
        let pipe = std::mem::replace(&mut child.output, spare);
        let source = Source::new(shared.names.clone(), child.pid);
        let output_ended = Arc::new(Notify::new());
        let reader = tokio::spawn(output::read(pipe, source.clone(), shared.printer.clone(), output_ended.clone()));
        let live = shared.account(child.pid);
        Ok(Self {
            shared,
            slot,
            child,
            live,
            source,
            output_ended,
            reader,
            parser: Parser::default(),
            flight: Flight::default(),
            watch: Watch::default(),
            unsent: Vec::new(),
            sent: 0,
            ready: false,
            silent: false,
            taking: None,
            last_claim: 0,
            calls: 0,
            born: Instant::now(),
            reaped: false,
            successor: None,
            heavy: false,
            weighed: Instant::now(),
        })
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
        let timer = tokio::time::sleep(self.shared.load_timeout + START);
        tokio::pin!(timer);
        let mut armed = true;
        let mut used = false;
        loop {
            if self.silent {
                // The end of the process closes its socket a moment before it is seen.
                return match timeout(DYING, self.child.pidfd.ended()).await {
                    Ok(()) => Turn::Dead,
                    Err(_) => Turn::kill("closed its connection to the engine"),
                };
            }
            let over = self.is_over(used);
            if over && self.successor.is_none() && self.slot.kind == Kind::Pool {
                self.successor = Some(self.shared.zygote.fork());
            }
            if over && self.flight.is_empty() {
                return Turn::Leave { ask: true };
            }
            let takes = self.ready && !over && self.taking.is_none() && self.flight.len() < self.slot.depth();
            if takes && let Some(held) = waiting.pop_front() {
                used |= self.send(held);
                continue;
            }
            let stalled = self.slot.kind == Kind::Pool && self.taking.is_some();
            if self.ready && !self.flight.is_empty() && !armed {
                timer.as_mut().reset(Instant::now() + TICK);
                armed = true;
            }
            let news = tokio::select! {
                biased;
                () = self.shared.closed() => return Turn::Closing,
                ready = self.child.socket.readable() => match ready {
                    Ok(()) => self.receive(Read::Announced),
                    Err(_) => return Turn::kill("could not be read from"),
                },
                () = self.child.pidfd.ended() => return Turn::Dead,
                _ = self.child.socket.writable(), if self.sent < self.unsent.len() => {
                    self.flush();
                    continue;
                }
                held = inbox.recv(), if takes || stalled => {
                    match held {
                        // Given back: the scheduler has others for it.
                        Some(held) if stalled => drop(held),
                        Some(held) => used |= self.send(held),
                        None => return Turn::Closing,
                    }
                    continue;
                }
                () = &mut timer, if armed => {
                    armed = false;
                    if !self.ready {
                        return Turn::kill("was not ready in time");
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
            };
            match news {
                Ok(true) => return Turn::Leave { ask: false },
                Ok(false) => {
                    if self.ready && armed && self.flight.is_empty() && self.calls == 0 {
                        armed = false; // the bound on its start
                    }
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
            Kind::Pool => {
                self.heavy
                    || config.max_calls.is_some_and(|most| self.calls >= most)
                    || config.max_age.is_some_and(|most| self.calls > 0 && self.born.elapsed() >= most)
            }
        }
    }

    /// Sends a frame, unless nobody waits for any of it; whether it did.
    fn send(&mut self, held: Held) -> bool {
        let Held { place, frame } = held;
        if !(0..frame.len()).any(|call| frame.is_open(call)) {
            return false;
        }
        if self.sent == self.unsent.len() {
            self.unsent.clear();
            self.sent = 0;
        }
        self.flight.send(frame, place, self.shared.clock.now_ns(), &mut self.unsent);
        self.show_function();
        self.flush();
        true
    }

    /// Output is named after the function at work.
    fn show_function(&self) {
        if let Some(function) = self.flight.function() {
            self.source.current.store(function, Ordering::Relaxed);
        }
    }

    fn flush(&mut self) {
        while self.sent < self.unsent.len() {
            match self.child.socket.try_write(&self.unsent[self.sent..]) {
                Ok(0) => return,
                Ok(sent) => {
                    self.sent += sent;
                    self.watch.heard(); // it reads: a large frame takes its time
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return,
                Err(_) => {
                    // It can't read any more: its end shows elsewhere.
                    self.sent = self.unsent.len();
                }
            }
        }
        // A buffer that grew for one large call is not kept.
        if self.unsent.capacity() > 1 << 20 {
            self.unsent = Vec::new();
            self.sent = 0;
        }
    }

    /// Reads what has come and acts on it; true when the worker retires.
    fn receive(&mut self, how: Read) -> Result<bool, Turn> {
        loop {
            let buffer = self.parser.buffer();
            buffer.reserve(8 << 10);
            let read = match how {
                Read::Announced => self.child.socket.try_read_buf(buffer),
                Read::All => {
                    let spare = rustix::buffer::spare_capacity(buffer);
                    rustix::net::recv(&self.child.socket, spare, RecvFlags::DONTWAIT)
                        .map(|(got, _)| got)
                        .map_err(Into::into)
                }
            };
            match read {
                Ok(0) => {
                    self.silent = true;
                    return Ok(false);
                }
                Ok(_) => {}
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(false),
                Err(_) => {
                    self.silent = true;
                    return Ok(false);
                }
            }
            loop {
                let message = match self.parser.next() {
                    Ok(Some(message)) => message,
                    Ok(None) => break,
                    Err(error) => return Err(Turn::kill(format!("was ended: it sent {error}"))),
                };
                let page = || self.child.page.read().ok();
                let now_ns = self.shared.clock.now_ns();
                let Ok(news) = self.flight.take(message, page, now_ns) else {
                    return Err(Turn::kill("was ended: it sent a message about a call that it does not have"));
                };
                if self.act_on(news) {
                    return Ok(true);
                }
            }
        }
    }

    fn act_on(&mut self, news: News) -> bool {
        self.watch.heard();
        if news.ready && !self.ready {
            self.ready = true;
            self.slot.stalled.store(false, Ordering::Release);
            self.slot.ready.store(true, Ordering::Release);
            self.shared.started();
            self.shared.poke.poke();
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
            self.show_function();
            drop(ended);
        }
        news.retire
    }

    /// Looks at the worker's memory, once in a while, if that matters.
    fn weigh(&mut self) {
        if let Some(most) = self.shared.config.max_rss
            && self.weighed.elapsed() >= WEIGH
        {
            self.weighed = Instant::now();
            self.heavy = resident_bytes(self.child.pid).is_some_and(|bytes| bytes > most);
        }
    }

    /// Looks at what the worker has in hand; when to look again.
    fn look(&mut self) -> Result<u64, Turn> {
        if self.receive(Read::All)? {
            return Err(Turn::Leave { ask: false });
        }
        let now_ns = self.shared.clock.now_ns();
        if self.flight.is_empty() {
            return Ok(now_ns + nanos(TICK));
        }
        let Ok(page) = self.child.page.read() else {
            return Err(Turn::kill("has an unreadable page"));
        };
        self.flight.settle_before(self.last_claim, &page, now_ns);
        self.last_claim = page.progress();
        let in_hand = self.flight.in_hand(&page);
        let look = self.watch.look(now_ns, in_hand);
        match (look.order, in_hand) {
            // If either fails the process is ending; the kill is due in any case.
            (Some(Order::Fire), Some(hand)) if self.child.page.aim(hand.claim).is_ok() => {
                let _ = self.child.pidfd.signal(Signal::URG);
            }
            (Some(Order::Kill), Some(_)) => return Err(Turn::Kill(Loss::Expired)),
            (Some(Order::Kill), None) => {
                return Err(Turn::kill("was ended: it did not start its calls"));
            }
            _ => {}
        }
        self.take_back(&page, in_hand.map(|hand| hand.claim), look.slow, look.age_ns, now_ns);
        Ok(look.wake_ns)
    }

    fn take_back(&mut self, page: &Snapshot, claim: Option<u64>, slow: bool, age_ns: u64, now_ns: u64) {
        match &mut self.taking {
            None => {
                let held_up = claim.is_some_and(|claim| self.flight.is_held_up(claim, slow));
                if !slow && !held_up {
                    return;
                }
                self.slot.stalled.store(true, Ordering::Release);
                // With nothing behind the slow call there is nothing to take back yet, but nothing may be put behind it either.
                let taken = !held_up || self.child.page.take_back(self.flight.last_id()).is_ok();
                self.taking = Some(Taking { asked_ns: now_ns, collected: !held_up || !taken });
            }
            Some(taking) if !taking.collected && now_ns.saturating_sub(taking.asked_ns) >= nanos(TICK) / 2 => {
                taking.collected = true;
                self.flight.take_back(page, age_ns);
            }
            Some(_) => {}
        }
    }

    async fn end(mut self, turn: Turn) -> End {
        let was_ready = self.ready;
        match turn {
            Turn::Dead => {
                self.child.kill(); // what it left of its group
                self.drain();
                let ending = timeout(ASK, self.shared.zygote.reap(self.child.pid)).await;
                let ending = ending.ok().and_then(Result::ok).unwrap_or(Ending::Unknown).to_string();
                self.reaped = true;
                // Its last words may say where it stood.
                self.output_ended.notify_one();
                let _ = (&mut self.reader).await;
                self.lose(&Loss::Crashed(ending.clone(), self.source.crash()));
                self.leave(Duration::ZERO);
                if was_ready {
                    End::Over(None)
                } else {
                    End::NeverReady(format!("a worker {ending} before it was ready"))
                }
            }
            Turn::Kill(loss) => {
                self.shared.counts.kills.fetch_add(1, Ordering::Relaxed);
                self.child.kill();
                // Not even SIGKILL ends a process that waits for a dead disk; its calls don't wait with it.
                let _ = timeout(DYING, self.child.pidfd.ended()).await;
                self.drain();
                self.lose(&loss);
                self.leave(Duration::ZERO);
                match loss {
                    Loss::Crashed(why, _) if !was_ready => End::NeverReady(format!("a worker {why}")),
                    _ => End::Over(None),
                }
            }
            Turn::Leave { ask } => {
                if ask {
                    self.unsent.extend_from_slice(&wire::close());
                    self.flush();
                }
                let successor = self.successor.take();
                self.leave(FAREWELL);
                End::Over(successor)
            }
            Turn::Closing => {
                let idle = self.flight.is_empty() && self.ready;
                let _ = self.child.page.take_back(self.flight.last_id());
                self.unsent.extend_from_slice(&wire::close());
                self.flush();
                let patience = if idle { FAREWELL } else { FAREWELL_BUSY };
                self.leave(if was_ready { patience } else { Duration::ZERO });
                End::Closing
            }
        }
    }

    /// Takes in what a dead worker said last.
    fn drain(&mut self) {
        // Whatever it finds, there is nothing more to do to the worker.
        while matches!(self.receive(Read::All), Ok(true)) {}
    }

    fn lose(&mut self, loss: &Loss) {
        let now_ns = self.shared.clock.now_ns();
        let lost = match self.child.page.read() {
            Ok(page) => self.flight.lose(&page, loss, now_ns),
            Err(_) => self.flight.lose(&Snapshot::empty(), loss, now_ns),
        };
        drop(lost);
    }

    /// Sees the process to its end, off the slot: the next worker need not wait for it (N-4). What it held is given back.
    fn leave(self, patience: Duration) {
        let Self { shared, child, live, output_ended, reader, flight, reaped, .. } = self;
        drop(flight);
        tokio::spawn(async move {
            let _ = timeout(patience, child.pidfd.ended()).await;
            if !reaped {
                child.kill(); // not after: its number may be another's
            }
            child.pidfd.ended().await;
            if !reaped {
                let _ = timeout(ASK, shared.zygote.reap(child.pid)).await;
            }
            output_ended.notify_one();
            if !reaped {
                // A reader that panicked has nothing more to read.
                let _ = reader.await;
            }
            drop(child); // its descriptors first: who waits for `live` finds none of them open
            drop(live);
        });
    }
}

/// What the process has in memory; none once it has ended.
fn resident_bytes(pid: Pid) -> Option<u64> {
    let text = std::fs::read_to_string(format!("/proc/{}/status", pid.as_raw_nonzero())).ok()?;
    let line = text.lines().find_map(|line| line.strip_prefix("VmRSS:"))?;
    let kilobytes: u64 = line.split_whitespace().next()?.parse().ok()?;
    Some(kilobytes * 1024)
}

//! The frames that one worker holds, and what became of their calls.
//!
//! - F-1  What the worker gave before it ended is settled, from its messages first and the page second; the call in hand fails; all else is given
//!   back as it was. Each call once.
//! - F-2  An answer that took longer than the timeout is a timeout, whether or not the worker was told.
//! - F-3  A worker that names a frame or a call it does not hold is not believed any further (`Violation`).
//! - F-4  A call's messages are taken in before its value is read from the page: they may carry its records.
//! - F-5  What a worker was killed for is blamed on that claim alone: a call that it began meanwhile is innocent.
//! - F-6  Where the progress word makes no sense, what was begun shows by its start stamps: they are of the frame's time or from before it.
//! - F-7  A worker that had to be ended because it began nothing costs its first call an attempt, which the scheduler grants once more, alone: given
//!   back with the others it might silence one worker after another for ever.

use std::collections::VecDeque;
use std::ops::Range;
use std::time::Duration;

use super::page::{CALLS, DECODING, LOADING, SETUP, Snapshot};
use super::places::Place;
use super::watch::InHand;
use super::wire::{self, Message, Text};
use crate::clock::nanos;
use crate::doing::{Doing, Phase};
use crate::fences::Bytes;
use crate::frame::Frame;
use crate::outcome::{Cell, Failure, FailureKind, Times};
use crate::scheduler::CallKind;
use crate::stood::and_where;

/// A message that no worker of ours sends.
#[derive(Debug)]
pub(super) struct Violation;

/// How the call in hand ended with its worker.
#[derive(Clone, Debug)]
pub(super) enum Loss {
    /// Out of time: told, and killed a grace later. Which claim, and where it stood if that could be seen.
    Expired(u64, Option<String>),
    /// It did what its fences forbid, and was killed for it: which claim, where it stood if that could be seen, and why.
    Stopped(u64, Option<String>, String),
    /// The worker ended: why, and where its interpreter stood if it could say.
    Crashed(String, Option<String>),
}

/// What a message changed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct News {
    pub ready: bool,
    /// Calls of a frame that ended.
    pub ended: Option<usize>,
    pub retire: bool,
}

/// A frame with the worker. Dropping it tells the scheduler that the frame ended.
pub(super) struct Sent {
    id: u64,
    sent_ns: u64,
    /// Before the frame, so that the place is free when the scheduler learns that the frame ended.
    #[expect(dead_code, reason = "held until the frame ends")]
    place: Place,
    frame: Frame,
}

/// What is at the front of a worker.
#[derive(Clone, Copy)]
enum Hand {
    Nothing,
    Phase(u8),
    Call(usize),
}

/// The frames of one worker, oldest first.
#[derive(Default)]
pub(super) struct Flight {
    sent: VecDeque<Sent>,
    last_id: u64,
}

impl Flight {
    pub(super) fn len(&self) -> usize {
        self.sent.len()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.sent.is_empty()
    }

    /// The frame at work.
    pub(super) fn front(&self) -> Option<&Frame> {
        self.sent.front().map(|sent| &sent.frame)
    }

    /// Calls of all frames that the worker holds.
    pub(super) fn calls(&self) -> usize {
        self.sent.iter().map(|sent| sent.frame.len()).sum()
    }

    /// The id of the frame sent last.
    pub(super) const fn last_id(&self) -> u64 {
        self.last_id
    }

    /// Takes a frame on and writes the message that sends it.
    pub(super) fn send(&mut self, frame: Frame, place: Place, now_ns: u64, out: &mut Vec<u8>) {
        self.last_id += 1;
        wire::run(self.last_id, &frame, out);
        self.sent.push_back(Sent { id: self.last_id, sent_ns: now_ns, place, frame });
    }

    /// What the page says is in hand.
    pub(super) fn in_hand(&self, page: &Snapshot) -> Option<InHand> {
        let sent = self.sent.front()?;
        let policy = &sent.frame.function().policy;
        let hand = sent.hand(page);
        let (call, limit, open) = match hand {
            Hand::Nothing => return None,
            Hand::Phase(DECODING) => (0, policy.timeout, sent.any_open(0)),
            Hand::Phase(_) => (0, policy.setup_timeout, sent.any_open(0)),
            Hand::Call(call) => (call, policy.timeout, sent.frame.is_open(call)),
        };
        Some(InHand {
            claim: sent.claim(hand),
            started_ns: page.stamp(sent.id, call),
            sent_ns: sent.sent_ns,
            limit_ns: nanos(limit),
            grace_ns: nanos(policy.grace),
            open,
        })
    }

    /// The claim in hand, and what it is for people.
    pub(super) fn doing(&self, page: &Snapshot, now_ns: u64) -> Option<(u64, Doing)> {
        let sent = self.sent.front().filter(|sent| sent.id == page.progress() >> 8)?;
        let hand = sent.hand(page);
        let call = if let Hand::Call(call) = hand { call } else { 0 };
        let started_ns = page.stamp(sent.id, call).clamp(sent.sent_ns.min(now_ns), now_ns);
        let age_ns = now_ns - started_ns;
        let doing = match hand {
            Hand::Nothing => return None,
            Hand::Call(call) if !sent.frame.is_pending(call) => return None, // it has said how it ended
            Hand::Call(call) => Doing::call(&sent.frame, call, age_ns),
            Hand::Phase(DECODING) => Doing::before(&sent.frame, Phase::Arguments, age_ns),
            Hand::Phase(LOADING) => Doing::before(&sent.frame, Phase::Loading, age_ns),
            Hand::Phase(_) => Doing::before(&sent.frame, Phase::Setup, age_ns),
        };
        Some((page.progress(), doing))
    }

    /// Whether something waits behind the claim that has run too long, or that nobody waits for any more.
    pub(super) fn is_held_up(&self, claim: u64, slow: bool) -> bool {
        let Some(sent) = self.sent.front().filter(|sent| sent.id == claim >> 8) else { return false };
        let behind = sent.after(claim);
        let mut waiting =
            behind.clone().filter(|call| sent.frame.is_pending(*call)).map(|call| sent.frame.is_open(call));
        let mut later = self.sent.iter().skip(1).map(|sent| sent.any_open(0));
        if slow {
            waiting.next().is_some() || later.next().is_some()
        } else {
            waiting.any(|open| !open) || later.any(|open| !open)
        }
    }

    /// Gives back what stands behind a claim; with nothing claimed, everything that has not begun.
    pub(super) fn take_back(&mut self, page: &Snapshot, age_ns: u64) {
        for (index, sent) in self.sent.iter_mut().enumerate() {
            match (index == 0, sent.hand(page)) {
                (true, Hand::Call(call)) => {
                    if age_ns > 0 {
                        sent.frame.observe(age_ns);
                    }
                    sent.frame.give_back(call + 1..sent.frame.len());
                }
                // It may be about to claim its first call, or to say how many it ran: its answer tells.
                _ if index == 0 => {}
                _ => sent.frame.give_back(0..sent.frame.len()),
            }
        }
    }

    /// Whether the page says that the frame at work has ended, which its worker has not said yet.
    pub(super) fn has_ended(&self, page: &Snapshot) -> bool {
        self.sent.front().is_some_and(|sent| sent.done(page).is_some())
    }

    /// Settles the calls before `claim` that gave plain values. The claim must be from an earlier look than what was read from the socket (F-4).
    pub(super) fn settle_before(&mut self, claim: u64, page: &Snapshot, now_ns: u64) {
        if let Some(sent) = self.sent.front_mut().filter(|sent| sent.id == claim >> 8)
            && let Hand::Call(call) = sent.hand_of((claim & 0xFF) as u8)
        {
            sent.settle(0..call, page, now_ns, false);
        }
    }

    /// Takes a message in.
    pub(super) fn take(
        &mut self,
        message: Message,
        page: impl FnOnce() -> Option<Snapshot>,
        now_ns: u64,
    ) -> Result<News, Violation> {
        match message {
            Message::Ready => return Ok(News { ready: true, ..News::default() }),
            Message::Begun { frame, .. } => {
                self.named(frame)?;
            }
            Message::Done { frame, ran, retire } => {
                let sent = self.named(frame)?;
                if ran > sent.frame.len() {
                    return Err(Violation);
                }
                if let Some(page) = page() {
                    // The next frame may have ended since. Else a function that says so itself would be given back and run for ever.
                    if page.last_done() < frame || page.done(frame).is_some_and(|done| done != ran) {
                        return Err(Violation);
                    }
                    sent.settle(0..ran, &page, now_ns, true);
                }
                let calls = sent.frame.len();
                sent.frame.give_back(ran..calls);
                return Ok(News { ended: Some(ran), retire, ready: false });
            }
            Message::Record { frame, call, json } => {
                let sent = self.named(frame)?;
                sent.held(call)?;
                sent.frame.record(call, json);
            }
            Message::Fail { frame, call, text, retry_after, retryable, expired } => {
                let sent = self.named(frame)?;
                sent.held(call)?;
                let times = page().map_or_else(Times::default, |page| sent.times(&page, call, None));
                let timeout = sent.frame.function().policy.timeout;
                let failure = if expired {
                    timeout_at(timed_out(timeout), text.traceback)
                } else if times.run_ns > nanos(timeout) {
                    let reason = format!("{}; then it failed: {}", timed_out(timeout), text.reason);
                    failure(FailureKind::Timeout, reason, text.traceback, true, None)
                } else {
                    failure(FailureKind::Error, text.reason, text.traceback, retryable, retry_after)
                };
                sent.frame.fail(call, failure, times);
            }
            Message::Cells { frame, call, cells } => {
                let sent = self.named(frame)?;
                sent.held(call)?;
                if sent.frame.kind() == CallKind::Sample || cells.len() != sent.frame.samples(call).len() {
                    return Err(Violation);
                }
                let times = page().map_or_else(Times::default, |page| sent.times(&page, call, None));
                sent.end(call, times, |frame| frame.settle_many(call, cells, times));
            }
            Message::SetupFailed { frame, text, expired } => {
                let sent = self.named(frame)?;
                let Text { reason, traceback } = text;
                let reason = if expired { and_where(sent.setup_timed_out(), traceback.as_deref()) } else { reason };
                sent.frame.fail_setup(reason, traceback);
            }
        }
        Ok(News::default())
    }

    /// Fails the one call at work for what it did, whatever it gave; not to be tried again.
    pub(super) fn fail_front(&mut self, reason: String, traceback: Option<String>, page: &Snapshot, now_ns: u64) {
        if let Some(sent) = self.sent.front_mut().filter(|sent| sent.frame.is_pending(0)) {
            let ended = page.stamp(sent.id, 1) > page.stamp(sent.id, 0);
            let times = sent.times(page, 0, (!ended).then_some(now_ns));
            sent.frame.fail(0, failure(FailureKind::Error, reason, traceback, false, None), times);
        }
    }

    /// Blames the silence of a worker that began nothing, as far as it says, on the first call that it has (F-7).
    pub(super) fn blame_first(&mut self, page: &Snapshot, why: &str) {
        if let Some(sent) = self.sent.front_mut().filter(|sent| sent.done(page).unwrap_or(0) == 0)
            && let Some(call) = (0..sent.frame.len()).find(|call| sent.frame.is_pending(*call))
        {
            sent.fail_in_hand(call, Times::default(), &Loss::Crashed(why.to_owned(), None));
        }
    }

    /// Lets the frame go that ended, once the worker's room is set right.
    pub(super) fn pop(&mut self) -> Option<Sent> {
        self.sent.pop_front()
    }

    /// Settles everything when the worker has ended and its socket is drained (F-1).
    pub(super) fn lose(&mut self, page: &Snapshot, loss: &Loss, now_ns: u64) -> Vec<Sent> {
        for sent in &mut self.sent {
            sent.lose(page, loss, now_ns);
        }
        self.sent.drain(..).collect()
    }

    fn named(&mut self, frame: u64) -> Result<&mut Sent, Violation> {
        self.sent.front_mut().filter(|sent| sent.id == frame).ok_or(Violation)
    }
}

impl Sent {
    fn hand(&self, page: &Snapshot) -> Hand {
        let (frame, low) = (page.progress() >> 8, (page.progress() & 0xFF) as u8);
        match self.hand_of(low) {
            _ if self.done(page).is_some() => Hand::Nothing,
            hand if frame == self.id && (low == 0 || !matches!(hand, Hand::Nothing)) => hand,
            // The worker has not come to it, or wrote nonsense (F-6).
            _ => self.begun(page).checked_sub(1).map_or(Hand::Nothing, Hand::Call),
        }
    }

    /// Calls that were begun, by their start stamps (F-6).
    fn begun(&self, page: &Snapshot) -> usize {
        let calls = self.frame.len().min(CALLS);
        (0..calls).take_while(|call| page.stamp(self.id, *call) >= self.sent_ns).count()
    }

    /// The number of calls that ran, once the worker wrote that the frame has ended.
    fn done(&self, page: &Snapshot) -> Option<usize> {
        let ran = page.done(self.id).or_else(|| {
            // The one behind it has ended too, and stands in the word. The call at which frames were taken back was stamped, and not run.
            let taken = usize::from(page.taken() >= self.id);
            (page.last_done() == self.id + 1).then(|| self.begun(page).saturating_sub(taken))
        });
        ran.filter(|ran| *ran <= self.frame.len())
    }

    /// What stands in the progress word while this is in hand.
    fn claim(&self, hand: Hand) -> u64 {
        self.id << 8
            | match hand {
                Hand::Nothing => 0,
                Hand::Phase(phase) => u64::from(phase),
                Hand::Call(call) => call as u64 + 1,
            }
    }

    fn hand_of(&self, low: u8) -> Hand {
        match low {
            DECODING | LOADING | SETUP => Hand::Phase(low),
            0 => Hand::Nothing,
            number if usize::from(number) <= self.frame.len().min(CALLS) => Hand::Call(usize::from(number) - 1),
            _ => Hand::Nothing,
        }
    }

    /// The calls behind a claim.
    fn after(&self, claim: u64) -> Range<usize> {
        match self.hand_of((claim & 0xFF) as u8) {
            Hand::Call(call) => call + 1..self.frame.len(),
            Hand::Phase(_) | Hand::Nothing => 0..self.frame.len(),
        }
    }

    fn any_open(&self, from: usize) -> bool {
        (from..self.frame.len()).any(|call| self.frame.is_open(call))
    }

    fn held(&self, call: usize) -> Result<(), Violation> {
        if call < self.frame.len() { Ok(()) } else { Err(Violation) }
    }

    /// When a call ran; `end_ns` where the page does not hold its end yet.
    fn times(&self, page: &Snapshot, call: usize, end_ns: Option<u64>) -> Times {
        let started_ns = page.stamp(self.id, call).max(self.sent_ns);
        let end_ns = end_ns.unwrap_or_else(|| page.stamp(self.id, call + 1));
        Times { started_ns, run_ns: end_ns.saturating_sub(started_ns) }
    }

    /// Settles calls that ran from the page; `done` when no message of theirs can come any more.
    fn settle(&mut self, calls: Range<usize>, page: &Snapshot, now_ns: u64, done: bool) {
        for call in calls {
            if !self.frame.is_pending(call) {
                continue;
            }
            let mut times = self.times(page, call, None);
            times.started_ns = times.started_ns.min(now_ns);
            let cell = match (self.frame.kind(), page.state(self.id, call)) {
                (CallKind::Sample, 0) => Cell::Value(page.value(self.id, call)),
                (CallKind::Sample, 1) => Cell::Abstained,
                _ if done && times.run_ns > nanos(self.frame.function().policy.timeout) => {
                    let reason = timed_out(self.frame.function().policy.timeout); // its own words were lost
                    self.frame.fail(call, failure(FailureKind::Timeout, reason, None, true, None), times);
                    continue;
                }
                _ if done => {
                    let reason = "the worker lost what the function returned".to_owned();
                    self.frame.fail(call, failure(FailureKind::Error, reason, None, true, None), times);
                    continue;
                }
                _ => continue,
            };
            self.end(call, times, |frame| frame.settle(call, cell, times));
        }
    }

    /// Ends a call that answered: in time as `settle` does, else as a timeout (F-2).
    fn end(&mut self, call: usize, times: Times, settle: impl FnOnce(&mut Frame)) {
        let timeout = self.frame.function().policy.timeout;
        if times.run_ns <= nanos(timeout) {
            settle(&mut self.frame);
        } else {
            let ran = Duration::from_nanos(times.run_ns);
            let reason = format!("{}; it answered after {:.3} s", timed_out(timeout), ran.as_secs_f64());
            self.frame.fail(call, failure(FailureKind::Timeout, reason, None, true, None), times);
        }
    }

    fn lose(&mut self, page: &Snapshot, loss: &Loss, now_ns: u64) {
        let calls = self.frame.len();
        if let Some(ran) = self.done(page) {
            self.settle(0..ran, page, now_ns, true);
        } else {
            match self.hand(page) {
                Hand::Nothing => {}
                // Once more, alone, as after a death in the call itself: it need not have been the function's doing.
                Hand::Phase(_) if matches!(loss, Loss::Crashed(..)) && !self.frame.is_suspect() => {
                    self.fail_in_hand(0, Times::default(), loss);
                }
                Hand::Phase(DECODING) => self.fail_in_hand(0, self.times(page, 0, Some(now_ns)), loss),
                Hand::Phase(phase) => {
                    let reason = match loss {
                        Loss::Expired(_, stack) => and_where(self.setup_timed_out(), stack.as_deref()),
                        Loss::Stopped(.., why) => why.clone(),
                        Loss::Crashed(why, _) if phase == LOADING => {
                            format!("the worker process {why} while it loaded the function")
                        }
                        Loss::Crashed(why, _) => format!("the worker process {why} in setup()"),
                    };
                    let (Loss::Crashed(_, stack) | Loss::Expired(_, stack) | Loss::Stopped(_, stack, _)) = loss;
                    self.frame.fail_setup(reason, stack.clone());
                }
                Hand::Call(call) => {
                    self.settle(0..call, page, now_ns, true);
                    if !self.is_innocent(call, page, loss) {
                        let times = self.times(page, call, Some(now_ns));
                        self.fail_in_hand(call, times, loss);
                    }
                }
            }
        }
        self.frame.give_back(0..calls);
    }

    /// Whether the worker was killed for an earlier call, which has ended meanwhile (F-5). Without one that ended there is no innocence: a
    /// worker that forges its claims would get the same calls again and again.
    fn is_innocent(&self, call: usize, page: &Snapshot, loss: &Loss) -> bool {
        let Loss::Expired(claim, _) = loss else { return false };
        if *claim >> 8 == self.id {
            matches!(self.hand_of((claim & 0xFF) as u8), Hand::Call(blamed) if blamed < call)
        } else {
            page.done(claim >> 8).is_some_and(|ran| ran > 0)
        }
    }

    fn fail_in_hand(&mut self, call: usize, times: Times, loss: &Loss) {
        // Settled by the scheduler meanwhile: the worker was stopped because of it (lane.rs L-4).
        let timeout = self.frame.function().policy.timeout;
        let failure = match loss {
            Loss::Expired(_, stack) => timeout_at(timed_out(timeout), stack.clone()),
            Loss::Stopped(_, stack, why) => failure(FailureKind::Error, why.clone(), stack.clone(), false, None),
            Loss::Crashed(why, stack) if times.run_ns > nanos(timeout) => {
                let reason = format!("{}; then the worker process {why}", timed_out(timeout)); // F-2
                failure(FailureKind::Timeout, reason, stack.clone(), true, None)
            }
            Loss::Crashed(why, stack) => {
                let limit = self.frame.function().fences.memory_limit;
                let under =
                    limit.map(|limit| format!(", under a memory_limit of {}", Bytes(limit))).unwrap_or_default();
                failure(FailureKind::Crashed, format!("the worker process {why}{under}"), stack.clone(), true, None)
            }
        };
        self.frame.fail(call, failure, times);
    }

    fn setup_timed_out(&self) -> String {
        format!(
            "setup() did not end within its timeout of {} s",
            self.frame.function().policy.setup_timeout.as_secs_f64()
        )
    }
}

fn timed_out(timeout: Duration) -> String {
    format!("no answer within the timeout of {} s", timeout.as_secs_f64())
}

/// A timeout, and where the call stood if its traceback tells.
fn timeout_at(reason: String, traceback: Option<String>) -> Failure {
    failure(FailureKind::Timeout, and_where(reason, traceback.as_deref()), traceback, true, None)
}

fn failure(
    kind: FailureKind,
    reason: String,
    traceback: Option<String>,
    retryable: bool,
    retry_after: Option<Duration>,
) -> Failure {
    Failure { kind, reason, traceback, retryable, retry_after }
}

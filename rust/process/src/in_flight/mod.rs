//! The frames that one worker holds, and how their calls end.
//!
//! - When a worker ends, its messages count first, the page second; then the running call fails and
//!   the rest is given back. The cause of a kill is charged to the running call only.
//! - An answer that took longer than the timeout is a timeout, even if the worker was not
//!   signalled.
//! - A call's messages are processed before its value is read, because they may have its records.
//! - A worker that ends before its first call costs that call an attempt. Otherwise the call would
//!   be given back, and could end one worker after another.

mod loss;
mod worker_frame;
mod zygote_loss;

use std::collections::VecDeque;

use guerdon_core::call::CallKind;
use guerdon_core::clock::nanos;
use guerdon_core::frame::Frame;
use guerdon_core::function::FunctionId;
use guerdon_core::in_flight::{InFlightCall, Phase};
use guerdon_core::loss_ledger::LossLedger;
use guerdon_core::outcome::{Failure, FailureKind, Times};
use guerdon_core::timeout_messages::{no_answer, timed_out};
use guerdon_wire::sent_constants::SentConstants;
pub(crate) use loss::Loss;
use loss::Violation;
use worker_frame::{Current, WorkerFrame, failure};

use crate::call_watch::RunningClaim;
use crate::shared_page::{DECODING, IMPORTING, LOADING, PageSnapshot};
use crate::slots::QueuedFrame;
use crate::wire::{self, Message, Text};

/// Changes by a message.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Update {
    pub ready: bool,
    /// Calls of a frame that ended.
    pub ended: Option<usize>,
    pub retire: bool,
}

/// Number of constants that a worker keeps, the same as in `python/guerdon/_worker/columns.py`.
const KEPT_CONSTANTS: usize = 8;

/// The frames of one worker, oldest first.
pub(super) struct InFlightFrames {
    sent: VecDeque<WorkerFrame>,
    last_id: u64,
    /// Constants that the worker has from earlier frames.
    constants: SentConstants,
}

impl Default for InFlightFrames {
    fn default() -> Self {
        Self { sent: VecDeque::new(), last_id: 0, constants: SentConstants::kept(KEPT_CONSTANTS) }
    }
}

impl InFlightFrames {
    pub(super) fn len(&self) -> usize {
        self.sent.len()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.sent.is_empty()
    }

    /// The frame that the worker runs.
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

    /// Adds a frame and writes its message; returns a frame that can't be written.
    pub(super) fn send(
        &mut self,
        held: QueuedFrame,
        memory_limit: Option<u64>,
        now_ns: u64,
        out: &mut Vec<u8>,
    ) -> Option<QueuedFrame> {
        let id = self.last_id + 1;
        if !wire::run(id, &held.frame, &mut self.constants, out) {
            return Some(held);
        }
        self.last_id = id;
        let QueuedFrame { guard, frame } = held;
        self.sent.push_back(WorkerFrame { id, sent_ns: now_ns, memory_limit, recorded: 0, guard, frame });
        None
    }

    /// Returns the running call according to the page.
    pub(super) fn running_claim(&self, page: &PageSnapshot) -> Option<RunningClaim> {
        let sent = self.sent.front()?;
        let policy = &sent.frame.function().policy;
        let hand = sent.hand(page);
        let (call, limit, open) = match hand {
            Current::Nothing => return None,
            Current::Phase(DECODING) => (0, policy.timeout, sent.any_open(0)),
            Current::Phase(_) => (0, policy.setup_timeout, sent.any_open(0)),
            Current::Call(call) => (call, policy.timeout, sent.frame.is_open(call)),
        };
        Some(RunningClaim {
            claim: sent.claim(hand),
            started_ns: page.stamp(sent.id, call),
            sent_ns: sent.sent_ns,
            limit_ns: nanos(limit),
            grace_ns: nanos(policy.grace),
            open,
        })
    }

    /// Returns the present claim, with its call for `dump()`.
    pub(super) fn in_flight_call(&self, page: &PageSnapshot, now_ns: u64) -> Option<(u64, InFlightCall)> {
        let sent = self.sent.front().filter(|sent| sent.id == page.progress() >> 8)?;
        let hand = sent.hand(page);
        let call = if let Current::Call(call) = hand { call } else { 0 };
        let started_ns = page.stamp(sent.id, call).clamp(sent.sent_ns.min(now_ns), now_ns);
        let age_ns = now_ns - started_ns;
        let call = match hand {
            Current::Nothing => return None,
            // its end was reported.
            Current::Call(call) if !sent.frame.is_pending(call) => return None,
            Current::Call(call) => InFlightCall::call(&sent.frame, call, age_ns),
            Current::Phase(IMPORTING | DECODING) => InFlightCall::before(&sent.frame, Phase::Arguments, age_ns),
            Current::Phase(LOADING) => InFlightCall::before(&sent.frame, Phase::Loading, age_ns),
            Current::Phase(_) => InFlightCall::before(&sent.frame, Phase::Setup, age_ns),
        };
        Some((page.progress(), call))
    }

    /// Returns whether calls wait behind a claim that has run too long, or that is not needed any
    /// more.
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

    /// Marks the frames as slow for the scheduler.
    pub(super) fn note_slow(&mut self) {
        self.sent.iter_mut().for_each(|sent| sent.frame.note_slow());
    }

    /// Gives back the calls behind a claim; without a claim, all calls that have not begun.
    pub(super) fn take_back(&mut self, page: &PageSnapshot, age_ns: u64) {
        for (index, sent) in self.sent.iter_mut().enumerate() {
            match (index == 0, sent.hand(page)) {
                (true, Current::Call(call)) => {
                    if age_ns > 0 {
                        sent.frame.observe(age_ns);
                    }
                    sent.frame.give_back(call + 1..sent.frame.len());
                }
                // The worker may be about to claim its first call, or to report how many ran: the
                // answer decides.
                _ if index == 0 => {}
                _ => sent.frame.give_back(0..sent.frame.len()),
            }
        }
    }

    /// Returns whether the page shows the end of the running frame, before the worker's message.
    pub(super) fn has_ended(&self, page: &PageSnapshot) -> bool {
        self.sent.front().is_some_and(|sent| sent.done(page).is_some())
    }

    /// Completes the calls before `claim` that gave plain values. The claim must come from an
    /// earlier check than the bytes from the socket.
    pub(super) fn complete_before(&mut self, claim: u64, page: &PageSnapshot, now_ns: u64) {
        if let Some(sent) = self.sent.front_mut().filter(|sent| sent.id == claim >> 8)
            && let Current::Call(call) = sent.hand_of((claim & 0xFF) as u8)
        {
            sent.complete(0..call, page, now_ns, false);
        }
    }

    /// Completes calls that gave plain values before their session does; the earlier snapshot of
    /// the page decides which have ended. Calls with counted output wait for their session.
    pub(super) fn complete_ahead(
        &mut self,
        earlier: &PageSnapshot,
        page: &PageSnapshot,
        is_metered: impl Fn(FunctionId) -> bool,
        now_ns: u64,
    ) {
        for sent in self.sent.iter_mut().filter(|sent| !is_metered(sent.frame.function_id())) {
            sent.complete_ahead(earlier, page, now_ns);
        }
    }

    /// Processes a message.
    pub(super) fn take(
        &mut self,
        message: Message,
        page: impl FnOnce() -> Option<PageSnapshot>,
        now_ns: u64,
    ) -> Result<Update, Violation> {
        match message {
            Message::Ready => return Ok(Update { ready: true, ..Update::default() }),
            Message::Begun { frame, .. } => {
                self.named(frame)?;
            }
            Message::Done { frame, ran, retire } => {
                let sent = self.named(frame)?;
                if ran > sent.frame.len() {
                    return Err(Violation);
                }
                if let Some(page) = page() {
                    // The page may show that the next frame has ended too. A function that forges
                    // this message would otherwise be given back and run for ever.
                    if page.last_done() < frame || page.done(frame).is_some_and(|done| done != ran) {
                        return Err(Violation);
                    }
                    sent.complete(0..ran, &page, now_ns, true);
                }
                let calls = sent.frame.len();
                sent.frame.give_back(ran..calls);
                return Ok(Update { ended: Some(ran), retire, ready: false });
            }
            Message::Used { frame, call, tokens } => {
                let sent = self.named(frame)?;
                sent.held(call)?;
                sent.frame.used(tokens);
            }
            Message::Record { frame, call, json } => {
                let sent = self.named(frame)?;
                sent.held(call)?;
                sent.record(call, json);
            }
            Message::Fail { frame, call, text, retry_after, answer, retryable, expired } => {
                let sent = self.named(frame)?;
                sent.held(call)?;
                let times = page().map_or_else(Times::default, |page| sent.times(&page, call, None));
                let timeout = sent.frame.function().policy.timeout;
                let failure = if expired {
                    timed_out(no_answer(timeout), text.traceback)
                } else if times.run_ns > nanos(timeout) {
                    let reason = format!("{}; then it failed: {}", no_answer(timeout), text.reason);
                    failure(FailureKind::Timeout, reason, text.traceback, true, None)
                } else {
                    let failed = failure(FailureKind::Error, text.reason, text.traceback, retryable, retry_after);
                    Failure { answer, ..failed }
                };
                sent.frame.fail(call, failure, times);
            }
            Message::Cells { frame, call, cells } => {
                let sent = self.named(frame)?;
                sent.held(call)?;
                if sent.frame.kind() == CallKind::Sample || cells.len() != sent.frame.size(call) {
                    return Err(Violation);
                }
                let times = page().map_or_else(Times::default, |page| sent.times(&page, call, None));
                sent.end(call, times, |frame| frame.complete_many(call, cells, times));
            }
            Message::SetupFailed { frame, text, expired, imports } => {
                let sent = self.named(frame)?;
                let Text { reason, traceback } = text;
                if expired && imports {
                    sent.time_out_import(traceback);
                } else if expired {
                    sent.frame.time_out_setup(traceback);
                } else {
                    sent.frame.fail_setup(reason, traceback);
                }
            }
        }
        Ok(Update::default())
    }

    /// Fails the running call, whatever its result, without another attempt.
    pub(super) fn fail_front(&mut self, reason: String, traceback: Option<String>, page: &PageSnapshot, now_ns: u64) {
        if let Some(sent) = self.sent.front_mut().filter(|sent| sent.frame.is_pending(0)) {
            let ended = page.stamp(sent.id, 1) > page.stamp(sent.id, 0);
            let times = sent.times(page, 0, (!ended).then_some(now_ns));
            sent.frame.fail(0, failure(FailureKind::Error, reason, traceback, false, None), times);
        }
    }

    /// Fails the first call of a worker that apparently began none, because the worker ended or
    /// stayed silent.
    pub(super) fn blame_first(&mut self, page: &PageSnapshot, why: &str) {
        if let Some(sent) = self.sent.front_mut().filter(|sent| sent.done(page).unwrap_or(0) == 0)
            && let Some(call) = (0..sent.frame.len()).find(|call| sent.frame.is_pending(*call))
        {
            sent.fail_running(call, Times::default(), &Loss::Crashed(why.to_owned(), None, false));
        }
    }

    /// Removes the frame that ended, after the worker's room was updated.
    pub(super) fn pop(&mut self) -> Option<WorkerFrame> {
        self.sent.pop_front()
    }

    /// Completes all frames after the worker's end, when its socket is drained.
    pub(super) fn lose(
        &mut self,
        page: &PageSnapshot,
        loss: &Loss,
        ledger: &LossLedger<()>,
        now_ns: u64,
    ) -> Vec<WorkerFrame> {
        for sent in &mut self.sent {
            sent.lose(page, loss, ledger, now_ns);
        }
        self.sent.drain(..).collect()
    }

    fn named(&mut self, frame: u64) -> Result<&mut WorkerFrame, Violation> {
        self.sent.front_mut().filter(|sent| sent.id == frame).ok_or(Violation)
    }
}

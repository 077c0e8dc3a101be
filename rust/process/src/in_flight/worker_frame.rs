//! One frame with its worker: which of its calls runs, and how each ends.

use std::ops::Range;
use std::time::Duration;

use guerdon_core::call::CallKind;
use guerdon_core::clock::nanos;
use guerdon_core::frame::Frame;
use guerdon_core::loss_ledger::LossLedger;
use guerdon_core::outcome::{Cell, Failure, FailureKind, Times, Traceback};
use guerdon_core::timeout_messages::{no_answer, timed_out};

use super::loss::{Loss, Violation, WITH_ITS_OWN};
use crate::resource_limits::ByteSize;
use crate::shared_page::{CALLS, DECODING, IMPORTING, LOADING, PageSnapshot, SETUP};
use crate::slots::SlotGuard;

/// Most bytes of records in one frame, the same as in `python/guerdon/_worker/wire.py`.
const FRAME_RECORDS: usize = 64 << 20;

/// A frame with its worker. Dropping it ends the frame for the scheduler.
pub(crate) struct WorkerFrame {
    pub(super) id: u64,
    pub(super) sent_ns: u64,
    /// Memory that its function may allocate, in bytes.
    pub(super) memory_limit: Option<u64>,
    /// Bytes of its calls' records.
    pub(super) recorded: usize,
    /// Dropped before the frame, so that the place is free when the scheduler gets the frame's end.
    #[expect(dead_code, reason = "held until the frame ends")]
    pub(super) guard: SlotGuard,
    pub(super) frame: Frame,
}

/// Progress of a worker in the first frame of its queue.
#[derive(Clone, Copy)]
pub(super) enum Current {
    Nothing,
    Phase(u8),
    Call(usize),
}

impl WorkerFrame {
    /// Keeps the record of a call, unless the frame's records would be too large: a correct worker
    /// drops these records and reports that.
    pub(super) fn record(&mut self, call: usize, json: Vec<u8>) {
        self.recorded = self.recorded.saturating_add(json.len());
        if self.recorded <= FRAME_RECORDS {
            self.frame.record(call, json);
        }
    }

    pub(super) fn hand(&self, page: &PageSnapshot) -> Current {
        let (frame, low) = (page.progress() >> 8, (page.progress() & 0xFF) as u8);
        match self.hand_of(low) {
            _ if self.done(page).is_some() => Current::Nothing,
            hand if frame == self.id && (low == 0 || !matches!(hand, Current::Nothing)) => hand,
            // The worker has not reached this frame, or wrote an impossible value.
            _ => self.begun(page).checked_sub(1).map_or(Current::Nothing, Current::Call),
        }
    }

    /// Number of calls that have begun, according to their start stamps.
    fn begun(&self, page: &PageSnapshot) -> usize {
        let calls = self.frame.len().min(CALLS);
        (0..calls).take_while(|call| page.stamp(self.id, *call) >= self.sent_ns).count()
    }

    /// Returns the number of calls that ran, once the worker wrote that the frame has ended.
    pub(super) fn done(&self, page: &PageSnapshot) -> Option<usize> {
        let ran = page.done(self.id).or_else(|| {
            // The next frame has ended too, and its number is in the word. The call at which frames
            // were taken back has a stamp, but did not run.
            let taken = usize::from(page.taken() >= self.id);
            (page.last_done() == self.id + 1).then(|| self.begun(page).saturating_sub(taken))
        });
        ran.filter(|ran| *ran <= self.frame.len())
    }

    /// Returns the value of the progress word during this phase or call.
    pub(super) fn claim(&self, hand: Current) -> u64 {
        self.id << 8
            | match hand {
                Current::Nothing => 0,
                Current::Phase(phase) => u64::from(phase),
                Current::Call(call) => call as u64 + 1,
            }
    }

    pub(super) fn hand_of(&self, low: u8) -> Current {
        match low {
            IMPORTING | DECODING | LOADING | SETUP => Current::Phase(low),
            0 => Current::Nothing,
            number if usize::from(number) <= self.frame.len().min(CALLS) => Current::Call(usize::from(number) - 1),
            _ => Current::Nothing,
        }
    }

    /// The calls behind a claim.
    pub(super) fn after(&self, claim: u64) -> Range<usize> {
        match self.hand_of((claim & 0xFF) as u8) {
            Current::Call(call) => call + 1..self.frame.len(),
            Current::Phase(_) | Current::Nothing => 0..self.frame.len(),
        }
    }

    pub(super) fn any_open(&self, from: usize) -> bool {
        (from..self.frame.len()).any(|call| self.frame.is_open(call))
    }

    pub(super) fn held(&self, call: usize) -> Result<(), Violation> {
        if call < self.frame.len() { Ok(()) } else { Err(Violation) }
    }

    /// Returns the times of a call; `end_ns` is used if the page does not hold its end yet.
    pub(super) fn times(&self, page: &PageSnapshot, call: usize, end_ns: Option<u64>) -> Times {
        let started_ns = page.stamp(self.id, call).max(self.sent_ns);
        let end_ns = end_ns.unwrap_or_else(|| page.stamp(self.id, call + 1));
        Times { started_ns, run_ns: end_ns.saturating_sub(started_ns) }
    }

    /// Completes calls that ran, from the page; `done` if no more of their messages can come.
    pub(super) fn complete(&mut self, calls: Range<usize>, page: &PageSnapshot, now_ns: u64, done: bool) {
        for call in calls {
            if !self.frame.is_pending(call) {
                continue;
            }
            let mut times = self.times(page, call, None);
            times.started_ns = times.started_ns.min(now_ns);
            // The value of a call that has not begun belongs to an earlier frame.
            let state = if page.stamp(self.id, call) < self.sent_ns { u8::MAX } else { page.state(self.id, call) };
            let cell = match (self.frame.kind(), state) {
                (CallKind::Sample, 0) => Cell::Value(page.value(self.id, call)),
                (CallKind::Sample, 1) => Cell::Abstained,
                _ if done && times.run_ns > nanos(self.frame.function().policy.timeout) => {
                    // the worker's reason was lost
                    let reason = no_answer(self.frame.function().policy.timeout);
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
            self.end(call, times, |frame| frame.complete(call, cell, times));
        }
    }

    /// Completes the calls that ran according to an earlier snapshot, before the session does. A
    /// call with messages in the socket waits for them.
    pub(super) fn complete_ahead(&mut self, earlier: &PageSnapshot, page: &PageSnapshot, now_ns: u64) {
        let claim = earlier.progress();
        let ran = match self.hand_of((claim & 0xFF) as u8) {
            Current::Call(call) if claim >> 8 == self.id => call,
            _ => self.done(earlier).unwrap_or(0),
        };
        for call in 0..ran {
            if !page.reported(self.id, call) || self.frame.has_record(call) {
                self.complete(call..call + 1, page, now_ns, false);
            }
        }
    }

    /// Ends a call that answered: with `complete` if it was in time, otherwise as a timeout.
    pub(super) fn end(&mut self, call: usize, times: Times, complete: impl FnOnce(&mut Frame)) {
        let timeout = self.frame.function().policy.timeout;
        if times.run_ns <= nanos(timeout) {
            complete(&mut self.frame);
        } else {
            let ran = Duration::from_nanos(times.run_ns);
            let reason = format!("{}; it answered after {:.3} s", no_answer(timeout), ran.as_secs_f64());
            self.frame.fail(call, failure(FailureKind::Timeout, reason, None, true, None), times);
        }
    }

    pub(super) fn lose(&mut self, page: &PageSnapshot, loss: &Loss, ledger: &LossLedger<()>, now_ns: u64) {
        let calls = self.frame.len();
        if let Some(ran) = self.done(page) {
            self.complete(0..ran, page, now_ns, true);
        } else {
            let hand = self.hand(page);
            if let Current::Call(call) = hand {
                self.complete(0..call, page, now_ns, true);
            }
            match loss {
                Loss::Zygote(standing) => self.lose_with_zygote(hand, page, *standing, ledger, now_ns),
                Loss::Crashed(..) if self.is_excused(hand, page, ledger, now_ns) => {}
                _ => self.charge(hand, page, loss, now_ns),
            }
        }
        self.frame.give_back(0..calls);
    }

    /// Fails the running call.
    fn charge(&mut self, hand: Current, page: &PageSnapshot, loss: &Loss, now_ns: u64) {
        match hand {
            Current::Nothing => {}
            // Tried once more, alone, as after a death in the call itself: the function's call need
            // not be the cause.
            Current::Phase(_) if matches!(loss, Loss::Crashed(..)) && !self.frame.is_suspect() => {
                self.fail_running(0, Times::default(), loss);
            }
            Current::Phase(DECODING) => self.fail_running(0, self.times(page, 0, Some(now_ns)), loss),
            Current::Phase(phase) => self.charge_setup(phase, loss),
            Current::Call(call) if self.is_innocent(call, page, loss) => {}
            Current::Call(call) => self.fail_running(call, self.times(page, call, Some(now_ns)), loss),
        }
    }

    /// Fails the function, because it was not ready for calls.
    pub(super) fn charge_setup(&mut self, phase: u8, loss: &Loss) {
        let place = match phase {
            LOADING => "while it loaded the function",
            IMPORTING => "while it imported the modules of its arguments",
            _ => "in setup()",
        };
        let (reason, stack) = match loss {
            Loss::Expired(_, stack) if phase == IMPORTING => return self.time_out_import(stack.clone()),
            Loss::Expired(_, stack) => return self.frame.time_out_setup(stack.clone()),
            Loss::Stopped(_, stack, why) => (why.clone(), stack.clone()),
            Loss::Crashed(why, stack, _) => (format!("the worker process {why} {place}"), stack.clone()),
            Loss::Zygote(_) => (format!("{place} the worker process {WITH_ITS_OWN}"), None),
        };
        self.frame.fail_setup(reason, stack);
    }

    /// Fails the function, because the modules of its arguments took too long to import.
    pub(super) fn time_out_import(&mut self, stack: Option<String>) {
        let limit = self.frame.function().policy.setup_timeout.as_secs_f64();
        let reason = format!("the modules of its arguments were not imported within the setup_timeout of {limit} s");
        self.frame.fail_setup(reason, stack);
    }

    /// Returns whether the worker was killed for an earlier call, which has ended meanwhile. If
    /// none has ended, the call is not innocent: a worker that forges its claims would otherwise
    /// get the same calls again and again.
    fn is_innocent(&self, call: usize, page: &PageSnapshot, loss: &Loss) -> bool {
        let Loss::Expired(claim, _) = loss else { return false };
        if *claim >> 8 == self.id {
            matches!(self.hand_of((claim & 0xFF) as u8), Current::Call(blamed) if blamed < call)
        } else {
            page.done(claim >> 8).is_some_and(|ran| ran > 0)
        }
    }

    pub(super) fn fail_running(&mut self, call: usize, times: Times, loss: &Loss) {
        // If the scheduler has completed the call meanwhile, that is why the worker was killed.
        let timeout = self.frame.function().policy.timeout;
        let failure = match loss {
            Loss::Expired(_, stack) => timed_out(no_answer(timeout), stack.clone()),
            Loss::Stopped(_, stack, why) => failure(FailureKind::Error, why.clone(), stack.clone(), false, None),
            Loss::Crashed(..) | Loss::Zygote(_) if self.is_overdue(times) => {
                let reason = format!("{}; then the worker process {}", no_answer(timeout), loss.why());
                let stack = if let Loss::Crashed(_, stack, _) = loss { stack.clone() } else { None };
                failure(FailureKind::Timeout, reason, stack, true, None)
            }
            Loss::Zygote(_) => {
                failure(FailureKind::Crashed, format!("the worker process {}", loss.why()), None, true, None)
            }
            Loss::Crashed(why, stack, may_lack_memory) => {
                // An exit status or SIGTERM is not caused by the limit.
                let limit = self.memory_limit.filter(|_| *may_lack_memory);
                let under =
                    limit.map(|limit| format!(", under a memory_limit of {}", ByteSize(limit))).unwrap_or_default();
                failure(FailureKind::Crashed, format!("the worker process {why}{under}"), stack.clone(), true, None)
            }
        };
        self.frame.fail(call, failure, times);
    }
}

pub(super) fn failure(
    kind: FailureKind,
    reason: String,
    traceback: Option<String>,
    retryable: bool,
    retry_after: Option<Duration>,
) -> Failure {
    let traceback = traceback.map(Traceback::Raised);
    Failure { kind, reason, traceback, retryable, retry_after, answer: None, progressed: false }
}

//! Gathering: calls on several samples at once, for functions that are faster so ("micro-batches"), and splitting those that fail.
//!
//! - M-1  A call has at most `max_size` samples, of one batch and of whatever groups; what stands in line goes along, up to that.
//! - M-2  What could be a fuller call waits only while more can come: the batch grows, and has room. It waits until the call is full, or the sample
//!   that has stood in line longest has done so for `max_wait`. What came back never waits.
//! - M-3  A call that failed is split in two, and so on until what fails is alone: by that a sample is in at most ⌈log₂ max_size⌉ + 1 calls. A part
//!   is never put together with anything else, however often it is given back.
//! - M-4  `retries` are of a sample that is alone; calls in which others were are not counted for them. The death of a worker counts as its first
//!   alone there is no other try after it.
//! - M-5  What is about the endpoint and no sample ("too many requests", no connection, a dead endpoint or gateway, 401, 403, 404, redirects)
//!   splits nothing: the samples are put off or fail together, as `retry` says of each.
//! - M-6  A call is one call for all that counts or times calls: places, permits, `timeout`, estimates. Deadlines, budgets, cuts and sweeps are of
//!   samples: those that are ended so are left out of the parts, and the others go on.

use std::sync::Arc;

use crate::batch::Batch;
use crate::call::{Call, Cause};
use crate::clock::nanos;
use crate::function::{FunctionId, Gather};
use crate::grid::Claim;
use crate::outcome::{Answer, Failure, FailureKind, Note, Times};
use crate::scheduler::order::submitted;
use crate::scheduler::timers::Due;
use crate::scheduler::work::Line;
use crate::scheduler::{Inner, retry};

/// Until when what stands in line waits for more; `None` when it shall go (M-2).
pub(super) fn waits_until(batch: &Batch, function: FunctionId, line: &Line, now_ns: u64) -> Option<u64> {
    let gather = batch.functions()[function].gather?;
    let oldest = line.arrived.front()?;
    if !line.returned.is_empty() || line.arrived.len() >= gather.max_size || !batch.is_open() || !batch.has_room() {
        return None;
    }
    let until_ns = batch.ready_ns(oldest.first, function).saturating_add(nanos(gather.max_wait));
    (now_ns < until_ns).then_some(until_ns)
}

/// Takes the samples of the next call out of a line that is ready (M-1, M-3); `None` if something goes first that runs by itself.
pub(super) fn take(line: &mut Line, batch: &Batch, gather: Gather) -> Option<Vec<Call>> {
    let mut calls = Vec::new();
    if let Some(head) = line.returned.front().copied() {
        if head.finish || (head.suspect && head.part == 0) {
            return None;
        }
        while let Some(call) = line.returned.front().copied() {
            let alone = call.finish || (call.suspect && call.part == 0);
            if calls.len() == gather.max_size || alone || call.part != head.part {
                break;
            }
            line.returned.pop_front();
            calls.push(call);
        }
        if head.part != 0 {
            return Some(calls);
        }
    }
    let samples = submitted(batch);
    while calls.len() < gather.max_size {
        match line.arrived.pop_front() {
            Some(call) => calls.push(call),
            None if line.cursor < samples => {
                calls.push(Call::fresh(line.cursor));
                line.cursor += 1;
            }
            None => break,
        }
    }
    Some(calls)
}

/// Whether a failure is about the endpoint, for all calls alike (M-5).
fn is_of_endpoint(failure: &Failure) -> bool {
    let Some(Answer::Status(status)) = failure.answer else { return failure.answer == Some(Answer::Unreachable) };
    matches!(status, 300..=399 | 401 | 403 | 404 | 405 | 407 | 429 | 502..=504)
}

impl Inner {
    /// A call on several samples failed: they are tried again in two parts, or have failed. `dead`: its endpoint is taken for dead.
    pub(crate) fn gathered_failed(
        self: &Arc<Self>,
        batch: &Arc<Batch>,
        function: FunctionId,
        claimed: Vec<(Call, Claim<'_>)>,
        failure: Failure,
        dead: bool,
        times: Times,
    ) {
        let policy = &self.function(function).policy;
        let together = dead || is_of_endpoint(&failure);
        let crashed = failure.kind == FailureKind::Crashed;
        let random = fastrand::f64();
        let (mut again, mut due_ns): (Vec<Call>, u64) = (Vec::new(), 0);
        let mut ended: Vec<(Call, Claim<'_>, Option<Cause>)> = Vec::new();
        {
            let mut state = self.state.lock();
            // Under the lock, as for a call of one sample (S-2).
            let now_ns = self.clock.now_ns();
            let closed = state.line(batch.id(), function).and_then(|line| line.closed.clone());
            for (mut call, claim) in claimed {
                if let Some(cause) = closed.clone().or_else(|| batch.cut_of(call.first, function, false)) {
                    ended.push((call, claim, Some(cause)));
                    continue;
                }
                let expires_ns = batch.expires_ns(call.first, function);
                let granted = if together {
                    let granted = retry::decide(policy, &call, &failure, now_ns, expires_ns, random);
                    if let Some(granted) = granted {
                        batch.count_retry(function);
                        call.suspect = granted.suspect;
                        due_ns = due_ns.max(granted.due_ns);
                    }
                    granted.is_some()
                } else {
                    if crashed && !call.suspect {
                        call.suspect = true; // M-4
                    } else {
                        call.excused = call.excused.saturating_add(1);
                    }
                    call.attempt < u16::MAX && expires_ns.is_none_or(|expires_ns| now_ns < expires_ns)
                };
                if granted {
                    call.attempt = claim.reopen();
                    again.push(call);
                } else {
                    ended.push((call, claim, None));
                }
            }
            if together && !again.is_empty() {
                let calls = std::mem::take(&mut again);
                if state.timers.set(due_ns, Due::Retry { batch: batch.id(), function, calls }) {
                    self.timers_changed.notify_one();
                }
            } else if !again.is_empty() {
                let behind = again.split_off(again.len().div_ceil(2));
                for mut part in [behind, std::mem::take(&mut again)] {
                    state.last_part += 1;
                    let number = state.last_part;
                    part.iter_mut().for_each(|call| call.part = number);
                    state.give_back(batch.id(), function, part);
                }
            }
        }
        let why = (failure.kind.status(), Note::from(failure));
        for (call, claim, swept) in ended {
            let (status, note) = swept.map_or_else(|| why.clone(), |cause| cause.end());
            self.fail(batch, function, false, call.first..call.first + 1, claim, status, &note, times);
        }
        self.pump();
    }
}

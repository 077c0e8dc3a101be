//! Splits a failed call on gathered samples into two calls, or ends it.

use std::sync::Arc;

use crate::batch::Batch;
use crate::call::{Call, Cause};
use crate::function::FunctionId;
use crate::grid::Claim;
use crate::outcome::{Answer, Failure, FailureKind, Note, Times};
use crate::scheduler::retry;
use crate::scheduler::state::SchedulerCore;
use crate::scheduler::timer_queue::Due;

/// A call and its batch.
type Of<'a> = (&'a Arc<Batch>, Call);

/// Returns whether the endpoint caused a failure, which then affects all calls alike.
fn is_of_endpoint(failure: &Failure) -> bool {
    let Some(Answer::Status(status)) = failure.answer else {
        return matches!(failure.answer, Some(Answer::Unreachable | Answer::Broken));
    };
    matches!(status, 300..=399 | 401 | 403 | 404 | 405 | 407 | 429 | 502..=504)
}

/// Groups calls by batch, in their order.
fn by_batch(calls: Vec<Of<'_>>) -> Vec<(u64, Vec<Call>)> {
    let pieces = calls.chunk_by(|(one, _), (other, _)| one.id() == other.id());
    pieces.map(|piece| (piece[0].0.id(), piece.iter().map(|(_, call)| *call).collect())).collect()
}

impl SchedulerCore {
    /// Ends a call on several samples that failed: with another try in two parts, or with their
    /// failure. `excused` means that the endpoint fails for all calls.
    pub(crate) fn gathered_failed(
        self: &Arc<Self>,
        function: FunctionId,
        claimed: Vec<(&Arc<Batch>, Call, Claim<'_>)>,
        failure: Failure,
        excused: bool,
        times: Times,
    ) {
        let policy = &self.function(function).policy;
        let together = excused || is_of_endpoint(&failure);
        let crashed = failure.kind == FailureKind::Crashed;
        let random = fastrand::f64();
        let (mut again, mut due_ns): (Vec<Of<'_>>, u64) = (Vec::new(), 0);
        let mut ended: Vec<(Of<'_>, Claim<'_>, Option<Cause>)> = Vec::new();
        {
            let mut state = self.state.lock();
            // Under the lock, as for a call of one sample (scheduler-1).
            let now_ns = self.clock.now_ns();
            for (batch, mut call, claim) in claimed {
                let closed = state.closed(batch.id(), function);
                if let Some(cause) = closed.or_else(|| batch.early_delivery_of(call.first, function, false)) {
                    ended.push(((batch, call), claim, Some(cause)));
                    continue;
                }
                let expires_ns = batch.expires_ns(call.first, function);
                let granted = if together {
                    let granted = retry::decide(policy, &call, &failure, now_ns, expires_ns, random);
                    if let Some(granted) = granted {
                        batch.count_retry(function, granted.deferred);
                        call.suspect = granted.suspect;
                        call.deferred = call.deferred.saturating_add(granted.deferred.into());
                        due_ns = due_ns.max(granted.due_ns);
                        if granted.deferred {
                            state.limiter_pauses[function].deferred(granted.due_ns);
                        }
                    }
                    granted.is_some()
                } else {
                    if crashed && !call.suspect {
                        call.suspect = true;
                    } else {
                        call.shared = call.shared.saturating_add(1);
                    }
                    call.attempt < u16::MAX && expires_ns.is_none_or(|expires_ns| now_ns < expires_ns)
                };
                if granted {
                    call.attempt = claim.reopen();
                    again.push((batch, call));
                } else {
                    ended.push(((batch, call), claim, None));
                }
            }
            if together && !again.is_empty() {
                if state.timers.set(due_ns, Due::Retry { function, calls: by_batch(again) }) {
                    self.timers_changed.notify_one();
                }
            } else if !again.is_empty() {
                let behind = again.split_off(again.len().div_ceil(2));
                for mut part in [behind, again] {
                    state.last_part += 1;
                    let number = state.last_part;
                    part.iter_mut().for_each(|(_, call)| call.part = number);
                    state.take_back(function, by_batch(part));
                }
            }
        }
        let why = (failure.kind.status(), Arc::new(Note::from(failure)));
        let mut counted = None;
        for ((batch, call), claim, swept) in ended {
            if swept.is_none() && counted.replace(batch.id()) != Some(batch.id()) {
                batch.count_gathered(function, times);
            }
            let (status, note) = swept.map_or_else(|| why.clone(), |cause| self.end_of(batch, function, &cause));
            self.fail(batch, function, false, call.first..call.first + 1, claim, status, &note, times);
        }
        self.pump_after(function);
    }
}

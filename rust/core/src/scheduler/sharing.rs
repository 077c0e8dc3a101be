//! Identical calls of pure functions in flight: made once, for all who ask.
//!
//! - Every waiter gets an outcome once: that of the call that leads, a failure after its retries
//!   too. Where the leader was ended from outside (a cancellation, a timeout of its batch or group,
//!   its total timeout) a waiter leads in its place.
//! - A waiter keeps its own bounds: what ends it meanwhile is its outcome.
//! - Identities are made on threads that may block, a few samples at a time, so that the first
//!   calls need not wait for the last.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use crate::batch::{Batch, Record};
use crate::call::{Call, Cause};
use crate::function::FunctionId;
use crate::outcome::{Note, Outcome, Times};
use crate::scheduler::shared_calls::{CallKey, Waiter};
use crate::scheduler::state::SchedulerCore;

/// Samples whose identities are made before their calls can be handed out.
const CHUNK: usize = 64;

impl SchedulerCore {
    /// Makes calls of a pure function possible, of identical ones in flight the first.
    pub(super) fn share(self: &Arc<Self>, batch: &Arc<Batch>, function: FunctionId, samples: Vec<usize>) {
        if samples.is_empty() {
            return;
        }
        let (core, batch) = (self.clone(), batch.clone());
        let identify = move || {
            let mut bytes = Vec::new();
            let identified = catch_unwind(AssertUnwindSafe(|| {
                for chunk in samples.chunks(CHUNK) {
                    core.share_chunk(&batch, function, chunk, &mut bytes);
                }
            }));
            if identified.is_err() {
                // Nobody else would make these calls.
                let why = Note { reason: "looking for identical calls panicked".to_owned(), traceback: None };
                core.end_broken(&[batch], function, &why);
            }
        };
        // Models have no threads but their own.
        if cfg!(all(test, feature = "loom")) {
            identify();
        } else {
            self.runtime.spawn_blocking(identify);
        }
    }

    fn share_chunk(self: &Arc<Self>, batch: &Arc<Batch>, function: FunctionId, samples: &[usize], bytes: &mut Vec<u8>) {
        let indexes: Vec<u32> = samples.iter().map(|sample| *sample as u32).collect();
        let payload = batch.payload().map(|payload| payload.hold(function, false, &indexes));
        let key = |sample: usize, bytes: &mut Vec<u8>| -> Option<CallKey> {
            bytes.clear();
            let known = payload.as_ref()?.identity(function, sample as u32, bytes);
            known.then(|| (function, *blake3::hash(bytes).as_bytes()))
        };
        let keys: Vec<Option<CallKey>> = samples.iter().map(|sample| key(*sample, bytes)).collect();
        let calls: Vec<Call> = {
            let mut sharing = self.sharing.lock();
            let leads =
                |(sample, key): &(&usize, Option<CallKey>)| key.is_none_or(|key| sharing.join(key, batch, **sample));
            samples.iter().zip(keys).filter(leads).map(|(sample, _)| Call::fresh(*sample)).collect()
        };
        self.queue_shared(batch, function, &calls, samples.len());
        // What a sweep ended before it led was not seen by anyone.
        let ended = samples.iter().filter(|sample| !is_open(batch, function, **sample));
        ended.for_each(|sample| self.pass_on_shared(batch, function, *sample));
        self.pump();
    }

    /// Puts calls into their queue, unless they are ended or about to be; `decided` were not
    /// possible before.
    fn queue_shared(&self, batch: &Arc<Batch>, function: FunctionId, calls: &[Call], decided: usize) {
        let mut state = self.state.lock();
        let is_early = |call: &&Call| batch.is_delivered_early(call.first / batch.group_size());
        let calls: Vec<Call> = calls.iter().filter(|call| !is_early(call)).copied().collect();
        state.works.edit(batch.id(), function, |queue| {
            queue.undecided = queue.undecided.saturating_sub(decided);
            if queue.closed.is_none() {
                queue.arrived.extend(&calls);
            }
        });
    }

    /// A cell of a pure function has its outcome: those who wait for it get it, or one of them
    /// leads.
    pub(super) fn pass_on_shared(self: &Arc<Self>, batch: &Arc<Batch>, function: FunctionId, sample: usize) {
        let Some((key, waiters)) = self.sharing.lock().leave(batch.id(), function, sample) else { return };
        let (grid, column) = batch.place(function, false);
        let Some((outcome, _)) = grid.read(sample, column) else { return };
        let note = batch.note_of(sample, function).map(Arc::new);
        let reason = note.as_ref().map_or("", |note| &note.reason);
        if Cause::is_outside(outcome.status, reason) {
            self.hand_over(key, waiters);
            return;
        }
        for (other, place) in waiters {
            let (grid, column) = other.place(function, false);
            let Some(claim) = grid.claim_open(place, column) else { continue };
            other.count_shared(function);
            if let Some(note) = note.as_ref().filter(|_| outcome.status.is_failure()) {
                self.fail(&other, function, false, place..place + 1, claim, outcome.status, note, Times::default());
                continue;
            }
            if let Some(json) = batch.record_of(sample, function) {
                other.record(function, Record { first: place, gathered: Vec::new(), json });
            }
            let extra = batch.extra_at(sample, function);
            if !extra.is_empty() {
                other.keep_extra(function, extra.into_iter().map(|extra| (place, extra)));
            }
            let outcome = Outcome { times: Times::default(), ..outcome };
            let completed = other.fill(function, false, claim, [outcome]);
            self.completed(&other, function, false, completed);
        }
    }

    /// The first waiter whose cell is open leads the others.
    fn hand_over(self: &Arc<Self>, key: CallKey, waiters: Vec<Waiter>) {
        let function = key.0;
        let led: Vec<Waiter> = {
            let mut sharing = self.sharing.lock();
            waiters
                .into_iter()
                .filter(|(batch, sample)| is_open(batch, function, *sample) && sharing.join(key, batch, *sample))
                .collect()
        };
        for (batch, sample) in led {
            self.queue_shared(&batch, function, &[Call::fresh(sample)], 0);
            if !is_open(&batch, function, sample) {
                self.pass_on_shared(&batch, function, sample);
            }
        }
        self.pump();
    }
}

fn is_open(batch: &Batch, function: FunctionId, sample: usize) -> bool {
    let (grid, column) = batch.place(function, false);
    grid.read(sample, column).is_none()
}

//! Identical calls of pure functions: one is made, or none if an earlier outcome was kept.
//!
//! - Every waiting call gets one outcome: that of the leading call, even a failure after its
//!   retries. If the leader was ended from outside (a cancellation, a timeout of its batch or
//!   group, its total timeout), a waiting call leads in its place.
//! - A waiting call keeps its timeouts: if one of them passes first, the call ends with that
//!   timeout.
//! - Identities are computed on threads that may block, a few samples at a time, so that the first
//!   calls need not wait for the last.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use tracing::debug;

use crate::batch::{Batch, Record};
use crate::call::{Call, Cause};
use crate::function::FunctionId;
use crate::outcome::{Note, Outcome, Status, Times};
use crate::outcome_cache::{KeptOutcome, OutcomeKey};
use crate::scheduler::shared_calls::{CallKey, Waiter};
use crate::scheduler::state::SchedulerCore;

/// Samples whose identities are computed before their calls can be handed out.
const CHUNK: usize = 64;

impl SchedulerCore {
    /// Makes calls of a pure function possible; of identical calls in flight only the first.
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
                // The calls would otherwise never be made or ended.
                let why = Note { reason: "looking for identical calls panicked".to_owned(), traceback: None };
                core.end_broken(&batch, function, &Cause::Broken(why));
            }
        };
        // Models have no threads except their own.
        if cfg!(all(test, feature = "loom")) {
            identify();
        } else {
            self.runtime.spawn_blocking(identify);
        }
    }

    fn share_chunk(self: &Arc<Self>, batch: &Arc<Batch>, function: FunctionId, samples: &[usize], bytes: &mut Vec<u8>) {
        let keys = self.keys(batch, function, samples, bytes);
        let leaders: Vec<(usize, Option<CallKey>)> = {
            let mut sharing = self.sharing.lock();
            let all = samples.iter().copied().zip(keys);
            all.filter(|(sample, key)| key.is_none_or(|key| sharing.join(key, batch, *sample))).collect()
        };
        let calls = self.without_kept(batch, function, leaders);
        self.queue_shared(batch, function, &calls, samples.len());
        // A sweep may have ended a call before it led, when no thread could find it.
        let ended = samples.iter().filter(|sample| !is_open(batch, function, **sample));
        ended.for_each(|sample| self.pass_on_shared(batch, function, *sample));
        self.pump();
    }

    /// Returns the identities of these samples' calls; `None` if a payload has none.
    fn keys(
        &self,
        batch: &Batch,
        function: FunctionId,
        samples: &[usize],
        bytes: &mut Vec<u8>,
    ) -> Vec<Option<CallKey>> {
        let indexes: Vec<u32> = samples.iter().map(|sample| *sample as u32).collect();
        let Some(payload) = batch.payload().map(|payload| payload.hold(function, false, &indexes)) else {
            return vec![None; samples.len()];
        };
        let version = self.function(function).cache.as_ref().map_or([0; 32], |cache| cache.version);
        let mut function_hash = blake3::Hasher::new_keyed(&version);
        for name in payload.names(function, false).unwrap_or_default() {
            function_hash.update(&(name.len() as u64).to_le_bytes()).update(name.as_bytes());
        }
        let key = |sample: &u32| {
            bytes.clear();
            let known = payload.identity(function, *sample, bytes);
            known.then(|| (function, *function_hash.clone().update(bytes).finalize().as_bytes()))
        };
        indexes.iter().map(key).collect()
    }

    /// Returns the calls that must be made; the others get their kept outcomes.
    fn without_kept(
        self: &Arc<Self>,
        batch: &Arc<Batch>,
        function: FunctionId,
        leaders: Vec<(usize, Option<CallKey>)>,
    ) -> Vec<Call> {
        let Some(cache) = &self.function(function).cache else {
            return leaders.into_iter().map(|(sample, _)| Call::fresh(sample)).collect();
        };
        let keys: Vec<OutcomeKey> = leaders.iter().filter_map(|(_, key)| key.map(|(_, key)| key)).collect();
        let mut found = cache.store.find(&keys).into_iter();
        let (mut calls, mut hits) = (Vec::new(), 0);
        for (sample, key) in leaders {
            match key.and_then(|_| found.next().flatten()) {
                Some(outcome) => {
                    hits += 1;
                    self.complete_kept(batch, function, sample, &outcome);
                }
                None => calls.push(Call::fresh(sample)),
            }
        }
        debug!(
            function = &*self.function(function).name,
            batch = batch.id(),
            hits,
            keys = keys.len(),
            "cache looked up"
        );
        self.call_counts[function].count_lookups(hits, keys.len() as u64 - hits);
        calls
    }

    /// Gives a kept outcome to a sample and the samples that wait for it.
    fn complete_kept(self: &Arc<Self>, batch: &Arc<Batch>, function: FunctionId, sample: usize, known: &KeptOutcome) {
        let waiters =
            self.sharing.lock().leave(batch.id(), function, sample).map_or(Vec::new(), |(_, waiters)| waiters);
        self.give(batch, function, sample, known, OutcomeOrigin::EarlierCall);
        self.give_all(function, waiters, known);
    }

    /// Puts calls into their queue, unless they have ended or are about to; `decided` is the number
    /// of them that was not possible before.
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

    /// Keeps the outcome of a cell of a pure function. The waiting calls get it, or one of them
    /// leads.
    pub(super) fn pass_on_shared(self: &Arc<Self>, batch: &Arc<Batch>, function: FunctionId, sample: usize) {
        let (grid, column) = batch.place(function, false);
        let cached = self.function(function).cache.as_ref();
        if let Some(cache) = cached {
            // Kept before it leaves: a call that comes later finds the outcome or waits for the
            // leader.
            let key = self.sharing.lock().key_of(batch.id(), function, sample);
            let outcome = grid.read(sample, column).filter(|(outcome, _)| outcome.status.is_answer());
            if let (Some((_, key)), Some((outcome, _))) = (key, outcome)
                && !batch.is_recorded_with_others(sample, function)
                && !batch.is_incomplete(sample, function)
            {
                cache.store.keep(key, Arc::new(kept(batch, function, sample, outcome)));
            }
        }
        let Some((key, waiters)) = self.sharing.lock().leave(batch.id(), function, sample) else { return };
        let Some((outcome, _)) = grid.read(sample, column) else { return };
        let note = batch.note_of(sample, function).map(Arc::new);
        let reason = note.as_ref().map_or("", |note| &note.reason);
        if Cause::is_outside(outcome.status, reason) {
            self.hand_over(key, waiters);
            return;
        }
        if waiters.is_empty() {
            return;
        }
        let Some(note) = note.filter(|_| outcome.status.is_failure()) else {
            self.give_all(function, waiters, &kept(batch, function, sample, outcome));
            return;
        };
        for (other, place) in waiters {
            let (grid, column) = other.place(function, false);
            let Some(claim) = grid.claim_open(place, column) else { continue };
            self.count_shared(&other, function);
            self.fail(&other, function, false, place..place + 1, claim, outcome.status, &note, Times::default());
        }
    }

    /// Gives the waiting calls the outcome of a call that succeeded.
    fn give_all(self: &Arc<Self>, function: FunctionId, waiters: Vec<Waiter>, known: &KeptOutcome) {
        for (other, place) in waiters {
            self.give(&other, function, place, known, OutcomeOrigin::IdenticalCall);
        }
    }

    /// Completes a cell, if it is open, with the outcome of an identical call.
    fn give(
        self: &Arc<Self>,
        batch: &Arc<Batch>,
        function: FunctionId,
        sample: usize,
        known: &KeptOutcome,
        origin: OutcomeOrigin,
    ) {
        let (grid, column) = batch.place(function, false);
        let Some(claim) = grid.claim_open(sample, column) else { return };
        let claim = match origin {
            OutcomeOrigin::EarlierCall => {
                batch.count_cached(function);
                claim.unattempted()
            }
            OutcomeOrigin::IdenticalCall => {
                self.count_shared(batch, function);
                claim
            }
        };
        if let Some(json) = known.record.clone() {
            batch.record(function, Record { first: sample, gathered: Vec::new(), json });
        }
        if !known.extra.is_empty() {
            batch.keep_extra(function, known.extra.iter().map(|extra| (sample, extra.clone())));
        }
        let times = Times::default();
        let outcome = match known.value {
            Some(value) => Outcome { status: Status::Ok, value, times },
            None => Outcome::without_value(Status::Abstained, times),
        };
        let completed = batch.fill(function, false, claim, [outcome]);
        self.completed(batch, function, false, completed);
    }

    fn count_shared(&self, batch: &Batch, function: FunctionId) {
        batch.count_shared(function);
        self.call_counts[function].count_shared();
    }

    /// Makes the first waiting call whose cell is open lead the others.
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

/// Origin of an outcome without a call.
#[derive(Clone, Copy)]
enum OutcomeOrigin {
    IdenticalCall,
    EarlierCall,
}

/// Returns the kept form of a sample's outcome, which is not a failure.
fn kept(batch: &Batch, function: FunctionId, sample: usize, outcome: Outcome) -> KeptOutcome {
    KeptOutcome {
        value: (outcome.status == Status::Ok).then_some(outcome.value),
        record: batch.record_of(sample, function),
        extra: batch.extra_at(sample, function),
    }
}

fn is_open(batch: &Batch, function: FunctionId, sample: usize) -> bool {
    let (grid, column) = batch.place(function, false);
    grid.read(sample, column).is_none()
}

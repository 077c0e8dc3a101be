//! Calls of pure functions in flight, and the calls that wait for their outcomes.
//!
//! - Among identical calls one leads and is made; the others wait.
//! - A leader leaves once, with all waiting calls; an identical call that comes later leads again.

use std::collections::HashMap;
use std::sync::Arc;

use crate::batch::Batch;
use crate::function::FunctionId;
use crate::outcome_cache::OutcomeKey;

/// Identity of a call: its function and the key of its values.
pub(crate) type CallKey = (FunctionId, OutcomeKey);
/// Cell of a call: batch, function, sample.
type CellIndex = (u64, FunctionId, usize);
/// A sample that waits for an identical call.
pub(crate) type Waiter = (Arc<Batch>, usize);

#[derive(Default)]
pub(crate) struct SharedCalls {
    leaders: HashMap<CellIndex, CallKey>,
    waiting: HashMap<CallKey, Vec<Waiter>>,
}

impl SharedCalls {
    /// Adds a call to be made. True if it leads; otherwise it waits for the one that leads.
    pub(crate) fn join(&mut self, key: CallKey, batch: &Arc<Batch>, sample: usize) -> bool {
        if let Some(waiting) = self.waiting.get_mut(&key) {
            waiting.push((batch.clone(), sample));
            return false;
        }
        self.waiting.insert(key, Vec::new());
        self.leaders.insert((batch.id(), key.0, sample), key);
        true
    }

    /// Returns the identity of the call, if it leads.
    pub(crate) fn key_of(&self, batch: u64, function: FunctionId, sample: usize) -> Option<CallKey> {
        self.leaders.get(&(batch, function, sample)).copied()
    }

    /// Removes a call whose cell has an outcome, and returns the calls that waited for a leading
    /// call.
    pub(crate) fn leave(&mut self, batch: u64, function: FunctionId, sample: usize) -> Option<(CallKey, Vec<Waiter>)> {
        let key = self.leaders.remove(&(batch, function, sample))?;
        Some((key, self.waiting.remove(&key).unwrap_or_default()))
    }
}

//! Values that one attempt of a call leaves for the next: an unread answer, or a program.
//!
//! - One value a call is kept, and replaced by the next one. None outlives its batch.
//! - They are kept in a bounded space: the oldest goes first.
//! - A value that goes is returned, so that the caller drops it without its lock.

use std::collections::BTreeMap;
use std::sync::{Arc, Weak};

use guerdon_core::batch::Batch;

/// A call: its batch, and its sample there.
pub type CallId = (u64, usize);

/// See the module.
#[derive(Debug)]
pub struct CallStore<T> {
    values: BTreeMap<CallId, StoredValue<T>>,
    /// The calls by age.
    order: BTreeMap<u64, CallId>,
    newest: u64,
    bytes: usize,
    most_bytes: usize,
}

#[derive(Debug)]
struct StoredValue<T> {
    value: T,
    bytes: usize,
    age: u64,
    batch: Weak<Batch>,
}

impl<T> CallStore<T> {
    pub fn new(most_bytes: usize) -> Self {
        Self { values: BTreeMap::new(), order: BTreeMap::new(), newest: 0, bytes: 0, most_bytes }
    }

    pub fn is_empty(&self) -> bool {
        self.values.is_empty()
    }

    /// Returns true if another value of this size fits.
    pub fn has_room(&self, bytes: usize) -> bool {
        self.bytes.saturating_add(bytes) <= self.most_bytes
    }

    pub fn get(&self, call: CallId) -> Option<&T> {
        self.values.get(&call).map(|stored| &stored.value)
    }

    /// Keeps a value; returns those that went.
    pub fn put(&mut self, batch: &Arc<Batch>, sample: usize, value: T, bytes: usize) -> Vec<T> {
        self.insert((batch.id(), sample), Arc::downgrade(batch), value, bytes)
    }

    fn insert(&mut self, call: CallId, batch: Weak<Batch>, value: T, bytes: usize) -> Vec<T> {
        let mut gone = Vec::from_iter(self.take(call));
        self.newest += 1;
        self.order.insert(self.newest, call);
        self.values.insert(call, StoredValue { value, bytes, age: self.newest, batch });
        self.bytes += bytes;
        while self.bytes > self.most_bytes
            && let Some((_, &oldest)) = self.order.first_key_value()
        {
            gone.extend(self.take(oldest));
        }
        gone
    }

    pub fn take(&mut self, call: CallId) -> Option<T> {
        let stored = self.values.remove(&call)?;
        self.order.remove(&stored.age);
        self.bytes -= stored.bytes;
        Some(stored.value)
    }

    /// Takes the values of batches that are done.
    pub fn take_ended(&mut self) -> Vec<T> {
        let is_done = |stored: &StoredValue<T>| stored.batch.upgrade().is_none_or(|batch| batch.is_done());
        let ended: Vec<CallId> =
            self.values.iter().filter(|(_, stored)| is_done(stored)).map(|(&call, _)| call).collect();
        ended.into_iter().filter_map(|call| self.take(call)).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_bounded_and_the_oldest_goes_first() {
        const MOST_BYTES: usize = 8 << 20;
        let mut store = CallStore::new(MOST_BYTES);
        let mut gone = 0;
        for call in 0..10_000 {
            gone += store.insert((1, call), Weak::new(), 'x', 4000).len();
            gone += store.insert((1, call), Weak::new(), 'y', 2000).len();
            if call % 2 == 0 {
                assert_eq!(store.take((1, call)), Some('y'));
            }
        }
        assert!(store.bytes <= MOST_BYTES);
        assert_eq!(store.bytes, store.values.values().map(|stored| stored.bytes).sum::<usize>());
        assert_eq!(store.order.len(), store.values.len());
        assert_eq!(gone, 10_000 + 5_000 - store.values.len(), "each is returned once");
        assert_eq!(store.get((1, 9999)), Some(&'y'));
        assert!(store.get((1, 1)).is_none(), "the oldest is gone");
        assert!(store.has_room(MOST_BYTES - store.bytes) && !store.has_room(MOST_BYTES - store.bytes + 1));
        let gone = store.insert((1, 9999), Weak::new(), 'z', MOST_BYTES + 1);
        assert_eq!(gone.last(), Some(&'z'), "too large to be kept");
        assert!(store.is_empty() && store.bytes == 0);
    }

    #[test]
    fn values_of_ended_batches_are_returned() {
        let mut store = CallStore::new(100);
        store.insert((1, 0), Weak::new(), 'x', 1);
        assert_eq!((store.take_ended(), store.is_empty()), (vec!['x'], true));
    }
}

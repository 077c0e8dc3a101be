//! Outcomes in memory, in front of the disk: bounded; the entries unused for longest are removed
//! first.

use std::sync::Arc;
use std::sync::atomic::AtomicI64;

use guerdon_core::outcome_cache::{KeptOutcome, OutcomeKey};
use guerdon_core::report::Extra;
use quick_cache::Weighter;
use quick_cache::sync::Cache;

/// Most bytes in memory, or the folder's size if that is less.
const MOST: u64 = 64 << 20;
/// Memory of an entry in addition to its contents.
const ENTRY: u64 = 128;

/// An outcome, and the time when its entry on disk was last marked as used. Written by the threads
/// that find it.
pub(crate) struct MemoryEntry {
    pub outcome: Arc<KeptOutcome>,
    pub marked_ms: AtomicI64,
}

#[derive(Clone)]
struct ByBytes;

impl Weighter<OutcomeKey, Arc<MemoryEntry>> for ByBytes {
    fn weight(&self, _: &OutcomeKey, entry: &Arc<MemoryEntry>) -> u64 {
        ENTRY + weight(&entry.outcome)
    }
}

/// Returns the approximate size of an outcome's contents, in bytes.
pub(crate) fn weight(outcome: &KeptOutcome) -> u64 {
    fn of(extra: &Extra) -> usize {
        match extra {
            Extra::None | Extra::Number(_) => size_of::<Extra>(),
            Extra::Text(text) => size_of::<Extra>() + text.len(),
            Extra::List(values) => size_of::<Extra>() + values.iter().map(of).sum::<usize>(),
        }
    }
    let extra: usize = outcome.extra.iter().map(|(name, value)| name.len() + of(value)).sum();
    (extra + outcome.record.as_ref().map_or(0, Vec::len)) as u64
}

pub(crate) struct Memory(Cache<OutcomeKey, Arc<MemoryEntry>, ByBytes>);

impl Memory {
    pub(crate) fn new(folder_bytes: u64) -> Self {
        let bytes = MOST.min(folder_bytes);
        let entries = usize::try_from(bytes / (2 * ENTRY)).unwrap_or(usize::MAX);
        Self(Cache::with_weighter(entries, bytes, ByBytes))
    }

    pub(crate) fn find(&self, key: &OutcomeKey) -> Option<Arc<MemoryEntry>> {
        self.0.get(key)
    }

    pub(crate) fn keep(&self, key: OutcomeKey, outcome: Arc<KeptOutcome>, marked_ms: i64) {
        self.0.insert(key, Arc::new(MemoryEntry { outcome, marked_ms: AtomicI64::new(marked_ms) }));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_stays_within_its_bytes() {
        let memory = Memory::new(1 << 20);
        let key = |number: u32| *blake3::hash(&number.to_le_bytes()).as_bytes();
        let large = Arc::new(KeptOutcome { record: Some(vec![0; 1000]), ..KeptOutcome::default() });
        (0..5000).for_each(|number| memory.keep(key(number), large.clone(), 0));
        let found = (0..5000).filter(|number| memory.find(&key(*number)).is_some()).count();
        assert!((100..1000).contains(&found), "{found} of 1 KB each in 1 MiB");
    }
}

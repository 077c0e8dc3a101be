//! Outcomes that are kept for later batches, runs and processes. Another crate stores them.
//!
//! - A failure is never kept, and an outcome is found only under the key of the same call of the
//!   same version of its function.
//! - A store that fails finds nothing and keeps nothing: calls are then made as without a store.

use std::fmt::{self, Debug, Formatter};
use std::sync::Arc;

use crate::report::NamedExtra;

/// Identity of a call: a hash of its function's version and of its values.
pub type OutcomeKey = [u8; 32];

/// Kept result of a call.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct KeptOutcome {
    /// The score; `None` if the call abstained.
    pub value: Option<f64>,
    /// Its record, as JSON.
    pub record: Option<Vec<u8>>,
    /// The named values that the call reported.
    pub extra: Vec<NamedExtra>,
}

/// A store of outcomes. Never panics.
pub trait OutcomeCache: Send + Sync {
    /// Returns the kept outcome of each of these calls. May wait for a disk.
    fn find(&self, keys: &[OutcomeKey]) -> Vec<Option<Arc<KeptOutcome>>>;

    /// Keeps an outcome if there is room; this process finds it from now on. Never waits.
    fn keep(&self, key: OutcomeKey, outcome: Arc<KeptOutcome>);
}

/// Store for the outcomes of one function.
#[derive(Clone)]
pub struct CachePolicy {
    pub store: Arc<dyn OutcomeCache>,
    /// A hash of everything that determines the function's outcomes, except its values.
    pub version: [u8; 32],
}

impl Debug for CachePolicy {
    fn fmt(&self, formatter: &mut Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("CachePolicy").finish_non_exhaustive()
    }
}

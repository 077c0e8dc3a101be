//! Outcomes that are kept for later batches, runs and processes. Another crate stores them.
//!
//! - A failure is never kept, and an outcome is found only under the key of the same call of the
//!   same version of its function.
//! - A store that has trouble finds nothing and keeps nothing: calls are then made as without one.

use std::fmt::{self, Debug, Formatter};
use std::sync::Arc;

use crate::report::NamedExtra;

/// Identity of a call: a hash of its function's version and of its values.
pub type OutcomeKey = [u8; 32];

/// Kept result of a call.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct KeptOutcome {
    /// `None`: it abstained.
    pub value: Option<f64>,
    /// Its record, as JSON.
    pub record: Option<Vec<u8>>,
    /// The named values that it reported.
    pub extra: Vec<NamedExtra>,
}

/// A store of outcomes. Never panics.
pub trait OutcomeCache: Send + Sync {
    /// Returns the kept outcomes of these calls, one each. May wait for a disk.
    fn find(&self, keys: &[OutcomeKey]) -> Vec<Option<Arc<KeptOutcome>>>;

    /// Keeps an outcome if there is room. Found from now on by this process; never waits.
    fn keep(&self, key: OutcomeKey, outcome: Arc<KeptOutcome>);
}

/// Store for the outcomes of one function.
#[derive(Clone)]
pub struct CachePolicy {
    pub store: Arc<dyn OutcomeCache>,
    /// A hash of all that decides the function's outcomes, its values aside.
    pub version: [u8; 32],
}

impl Debug for CachePolicy {
    fn fmt(&self, formatter: &mut Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("CachePolicy").finish_non_exhaustive()
    }
}

//! Storage of a limit's rate limiter: in this process, for the limit of one function, or in the
//! file of a key, with the calls that other engines have in flight.

use std::io;
use std::path::Path;

use super::rate_limiter::Rules;
use super::shared_file::{LockedState, SharedFile};

/// See the module.
#[derive(Debug)]
pub(super) enum Store {
    Own(Box<LockedState>),
    Shared(Box<SharedFile>),
}

impl Store {
    /// Makes a store in the file `path` of a key; without a path the limit is one function's.
    pub(super) fn new(path: Option<&Path>) -> Self {
        path.map_or_else(|| Self::Own(LockedState::own().into()), |path| Self::Shared(SharedFile::new(path).into()))
    }

    pub(super) const fn is_shared(&self) -> bool {
        matches!(self, Self::Shared(_))
    }

    /// Calls `work` with the rate limiter; `None` if the file is locked.
    pub(super) fn with<R>(&mut self, now_ns: u64, work: impl FnOnce(&mut LockedState) -> R) -> io::Result<Option<R>> {
        match self {
            Self::Own(own) => Ok(Some(work(own))),
            Self::Shared(shared) => shared.with(now_ns, work),
        }
    }

    /// Returns the number of calls that may be in flight, `most` by the rules. It is `most` itself
    /// for a file.
    pub(super) fn allowed_concurrency(&self, rules: &Rules, most: usize) -> usize {
        match self {
            Self::Own(own) => own.limiter.allowed_concurrency(rules, most),
            Self::Shared(_) => most,
        }
    }

    /// Releases this engine's lease in the file.
    pub(super) fn leave(&mut self) {
        if let Self::Shared(shared) = self {
            shared.leave();
        }
    }
}

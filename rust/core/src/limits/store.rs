//! The rate limiter of a limit where it is kept: in this process, for a function's own limit, or in
//! the file of a key, with what other engines have in flight.

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
    /// `path` is the file of a key; without one the limit is a function's own.
    pub(super) fn new(path: Option<&Path>) -> Self {
        path.map_or_else(|| Self::Own(LockedState::own().into()), |path| Self::Shared(SharedFile::new(path).into()))
    }

    pub(super) const fn is_shared(&self) -> bool {
        matches!(self, Self::Shared(_))
    }

    /// Does something with the rate limiter; `None` if the file is locked.
    pub(super) fn with<R>(&mut self, now_ns: u64, work: impl FnOnce(&mut LockedState) -> R) -> io::Result<Option<R>> {
        match self {
            Self::Own(own) => Ok(Some(work(own))),
            Self::Shared(shared) => shared.with(now_ns, work),
        }
    }

    /// Returns the number of calls that may be in flight of `most`: of a file's as its rules say.
    pub(super) fn allowed_concurrency(&self, rules: &Rules, most: usize) -> usize {
        match self {
            Self::Own(own) => own.limiter.allowed_concurrency(rules, most),
            Self::Shared(_) => most,
        }
    }

    /// Gives back what this engine has in the file.
    pub(super) fn leave(&mut self) {
        if let Self::Shared(shared) = self {
            shared.leave();
        }
    }
}

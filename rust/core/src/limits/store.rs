//! The rate limiter of a limit where it is kept: in this process, for a function's own limit, or in
//! the file of a key, with what other engines have in flight.

use std::io;
use std::path::Path;

use super::rate_limiter::{Decision, RateLimiter, Rules, Tokens};
use super::shared_file::{LockedState, SharedFile};

/// See the module.
#[derive(Debug)]
pub(super) enum Store {
    Own(Box<RateLimiter>),
    Shared(Box<SharedFile>),
}

impl Store {
    /// `path` is the file of a key; without one the limit is a function's own.
    pub(super) fn new(path: Option<&Path>) -> Self {
        path.map_or_else(|| Self::Own(Box::default()), |path| Self::Shared(Box::new(SharedFile::new(path))))
    }

    pub(super) const fn is_shared(&self) -> bool {
        matches!(self, Self::Shared(_))
    }

    /// Does something with the rate limiter; `None` if the file is locked.
    pub(super) fn with<R>(&mut self, now_ns: u64, work: impl FnOnce(&mut View<'_>) -> R) -> io::Result<Option<R>> {
        match self {
            Self::Own(limiter) => Ok(Some(work(&mut View::Own(limiter)))),
            Self::Shared(shared) => shared.with(now_ns, |locked| work(&mut View::Shared(locked))),
        }
    }

    /// Returns the number of calls that may be in flight of `most`: of a file's as its rules say.
    pub(super) fn allowed_concurrency(&self, rules: &Rules, most: usize) -> usize {
        match self {
            Self::Own(limiter) => limiter.allowed_concurrency(rules, most),
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

/// The rate limiter in use: the function's own, or the locked file's.
pub(super) enum View<'a> {
    Own(&'a mut RateLimiter),
    Shared(&'a mut LockedState),
}

impl View<'_> {
    pub(super) const fn limiter(&mut self) -> &mut RateLimiter {
        match self {
            Self::Own(limiter) => limiter,
            Self::Shared(locked) => &mut locked.limiter,
        }
    }

    pub(super) fn ask(&mut self, rules: &Rules, now_ns: u64, tokens: Tokens, in_flight: usize) -> Decision {
        if let Self::Shared(locked) = self
            && let Some(until_ns) = locked.yields(rules, in_flight, now_ns)
        {
            return Decision::Wait { until_ns: until_ns.unwrap_or(u64::MAX), on_release: true };
        }
        let all = self.in_flight(in_flight);
        self.limiter().ask(rules, now_ns, tokens, all)
    }

    /// Has the other engines know whether this one waits.
    pub(super) fn asked(&mut self, decision: &Decision, now_ns: u64) {
        if let Self::Shared(locked) = self {
            match decision {
                Decision::Go(_) => locked.serve(now_ns),
                Decision::Wait { .. } => locked.wait(now_ns),
                Decision::BreakerOpen(_) | Decision::Throttled(_) => {}
            }
        }
    }

    /// Returns the calls in flight of all engines, `own` being this one's.
    pub(super) fn in_flight(&self, own: usize) -> usize {
        let others = if let Self::Shared(locked) = self { locked.in_flight_elsewhere() } else { 0 };
        own.saturating_add(others)
    }

    pub(super) fn set_in_flight(&mut self, in_flight: usize) {
        if let Self::Shared(locked) = self {
            locked.set_in_flight(in_flight);
        }
    }

    pub(super) fn free_expired(&mut self, now_ns: u64) -> bool {
        if let Self::Shared(locked) = self { locked.free_expired(now_ns) } else { false }
    }
}

//! A process that forks workers, as those who hold one of them know it: the zygote, the loader, or
//! a loader that forks for some of them, or for one alone.
//!
//! The kernel kills its children when it ends, and shows its own end first; a lost zygote's
//! descendants are killed by us, too. A worker that was killed while all of them lived was
//! therefore killed by itself.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use guerdon_core::pidfd::Pidfd;

/// A user who ends one process that forks and then the next has ended both by then.
const SPREAD: Duration = Duration::from_millis(50);

/// See the module.
pub(super) struct Parent {
    pub pidfd: Pidfd,
    /// True while its children are reaped only on request, as far as is known. Written by the
    /// zygote's supervisor.
    alive: AtomicBool,
    /// The process that forked it, with which it ends.
    above: Option<Arc<Self>>,
    /// It forks one worker.
    of_one: bool,
}

impl Parent {
    /// The zygote.
    pub(super) fn top(pidfd: Pidfd) -> Arc<Self> {
        Arc::new(Self { pidfd, alive: AtomicBool::new(true), above: None, of_one: false })
    }

    pub(super) fn new(pidfd: Pidfd, above: &Arc<Self>) -> Arc<Self> {
        Arc::new(Self { pidfd, alive: AtomicBool::new(true), above: Some(above.clone()), of_one: false })
    }

    /// One that forks one worker.
    pub(super) fn of_one(pidfd: Pidfd, above: &Arc<Self>) -> Arc<Self> {
        Arc::new(Self { pidfd, alive: AtomicBool::new(true), above: Some(above.clone()), of_one: true })
    }

    pub(super) const fn is_of_one(&self) -> bool {
        self.of_one
    }

    /// Returns whether its children have the functions already, and run no user code before they
    /// are ready.
    pub(super) const fn is_loaded(&self) -> bool {
        self.above.is_some()
    }

    pub(super) fn is_alive(&self) -> bool {
        self.alive.load(Ordering::Acquire)
    }

    /// Notes that its children may be reaped by any process from now on.
    pub(super) fn lost(&self) {
        self.alive.store(false, Ordering::Release);
    }

    fn all_above(&self) -> impl Iterator<Item = &Self> {
        std::iter::successors(self.above.as_deref(), |parent| parent.above.as_deref())
    }

    /// Returns whether it has ended, or is about to as one above it has.
    pub(super) fn has_ended(&self) -> bool {
        self.pidfd.has_ended() || self.all_above().any(|above| above.pidfd.has_ended())
    }

    /// Returns whether it ended by itself, and no worker but its one with it.
    pub(super) async fn was_lost_alone(&self) -> bool {
        if !self.of_one {
            return false;
        }
        tokio::time::sleep(SPREAD).await;
        !self.all_above().any(|above| above.pidfd.has_ended())
    }
}

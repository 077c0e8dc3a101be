//! A process that forks workers, for the holders of its workers: the zygote, the loader, or a
//! loader that forks some of the workers or a single one.
//!
//! The kernel kills its children when it ends, after its end is visible; the supervisor kills the
//! descendants of a lost zygote too. A worker that was killed while all its parents lived was
//! therefore not killed because of them.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use guerdon_core::pidfd::Pidfd;

/// If a user ends several forking processes one after the other, all have ended within this time.
const SPREAD: Duration = Duration::from_millis(50);

/// See the module.
pub(super) struct Parent {
    pub pidfd: Pidfd,
    /// True while its children are reaped only on request, until its loss is noticed. Written by
    /// the zygote's supervisor.
    alive: AtomicBool,
    /// The process that forked it, and at whose end it ends.
    above: Option<Arc<Self>>,
    /// True if it forks a single worker.
    of_one: bool,
}

impl Parent {
    /// Makes the entry of the zygote.
    pub(super) fn top(pidfd: Pidfd) -> Arc<Self> {
        Arc::new(Self { pidfd, alive: AtomicBool::new(true), above: None, of_one: false })
    }

    pub(super) fn new(pidfd: Pidfd, above: &Arc<Self>) -> Arc<Self> {
        Arc::new(Self { pidfd, alive: AtomicBool::new(true), above: Some(above.clone()), of_one: false })
    }

    /// Makes the entry of a loader that forks a single worker.
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

    /// Records that its children may be reaped by any process from now on.
    pub(super) fn lost(&self) {
        self.alive.store(false, Ordering::Release);
    }

    fn all_above(&self) -> impl Iterator<Item = &Self> {
        std::iter::successors(self.above.as_deref(), |parent| parent.above.as_deref())
    }

    /// Returns whether it has ended, or is about to because a parent has.
    pub(super) fn has_ended(&self) -> bool {
        self.pidfd.has_ended() || self.all_above().any(|above| above.pidfd.has_ended())
    }

    /// Returns whether it ended by itself, with its single worker and no other.
    pub(super) async fn was_lost_alone(&self) -> bool {
        if !self.of_one {
            return false;
        }
        tokio::time::sleep(SPREAD).await;
        !self.all_above().any(|above| above.pidfd.has_ended())
    }
}

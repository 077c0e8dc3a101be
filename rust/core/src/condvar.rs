//! A condition variable for threads that wait while a process may be forked, beside parking_lot's
//! mutex.
//!
//! - parking_lot keeps a list of all waiting threads, which a forked child would walk when it
//!   starts threads although the parent's threads do not exist there. Here the kernel keeps the
//!   list.
//! - A change made under the mutex before a notification is visible to the woken thread.

use std::sync::{Condvar as SystemCondvar, Mutex as SystemMutex, PoisonError};
use std::time::Instant;

use parking_lot::MutexGuard;

/// See the module.
#[derive(Debug, Default)]
pub struct Condvar {
    /// Notifications so far.
    notified: SystemMutex<u64>,
    changed: SystemCondvar,
}

impl Condvar {
    #[must_use]
    pub const fn new() -> Self {
        Self { notified: SystemMutex::new(0), changed: SystemCondvar::new() }
    }

    /// Waits with the mutex unlocked until there is a notification.
    pub fn wait<T>(&self, guard: &mut MutexGuard<'_, T>) {
        self.wait_for_notification(guard, None);
    }

    /// Waits for a notification or until `until`; true if there was a notification.
    pub fn wait_until<T>(&self, guard: &mut MutexGuard<'_, T>, until: Instant) -> bool {
        self.wait_for_notification(guard, Some(until))
    }

    fn wait_for_notification<T>(&self, guard: &mut MutexGuard<'_, T>, until: Option<Instant>) -> bool {
        let before = *self.notified.lock().unwrap_or_else(PoisonError::into_inner);
        MutexGuard::unlocked(guard, || {
            let mut notified = self.notified.lock().unwrap_or_else(PoisonError::into_inner);
            while *notified == before {
                let Some(until) = until else {
                    notified = self.changed.wait(notified).unwrap_or_else(PoisonError::into_inner);
                    continue;
                };
                let left = until.saturating_duration_since(Instant::now());
                if left.is_zero() {
                    return false;
                }
                notified = self.changed.wait_timeout(notified, left).unwrap_or_else(PoisonError::into_inner).0;
            }
            true
        })
    }

    pub fn notify_one(&self) {
        // Notified under the lock, so that a thread that begins to wait now does not take the place
        // of another.
        let mut notified = self.notified.lock().unwrap_or_else(PoisonError::into_inner);
        *notified += 1;
        self.changed.notify_one();
    }

    pub fn notify_all(&self) {
        let mut notified = self.notified.lock().unwrap_or_else(PoisonError::into_inner);
        *notified += 1;
        self.changed.notify_all();
    }
}

#[cfg(all(test, not(feature = "loom")))]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::thread::{JoinHandle, sleep, spawn};
    use std::time::Duration;

    use parking_lot::Mutex;

    use super::*;

    /// Far longer than any wait here takes.
    const LONG: Duration = Duration::from_secs(30);

    #[derive(Default)]
    struct Permits {
        permits: Mutex<usize>,
        condvar: Condvar,
        waiting: AtomicUsize,
        served: AtomicUsize,
    }

    impl Permits {
        /// Threads that each wait for a permit.
        fn waiters(self: &Arc<Self>, count: usize) -> Vec<JoinHandle<()>> {
            let wait = |shared: Arc<Self>| {
                let mut permits = shared.permits.lock();
                shared.waiting.fetch_add(1, Ordering::SeqCst);
                while *permits == 0 {
                    shared.condvar.wait(&mut permits);
                }
                *permits -= 1;
                drop(permits);
                shared.served.fetch_add(1, Ordering::SeqCst);
            };
            let started: Vec<_> = (0..count).map(|_| (self.clone(), wait)).collect();
            let handles = started.into_iter().map(|(shared, wait)| spawn(move || wait(shared))).collect();
            while self.waiting.load(Ordering::SeqCst) < count {
                sleep(Duration::from_millis(1));
            }
            handles
        }

        fn wait_until_served(&self, count: usize) {
            let until = Instant::now() + LONG;
            while self.served.load(Ordering::SeqCst) < count {
                assert!(Instant::now() < until, "{} of {count} were woken", self.served.load(Ordering::SeqCst));
                sleep(Duration::from_millis(1));
            }
        }
    }

    #[test]
    fn each_notification_of_one_wakes_somebody_who_waits() {
        let shared = Arc::<Permits>::default();
        let handles = shared.waiters(4);
        for served in 1..=4 {
            *shared.permits.lock() += 1;
            shared.condvar.notify_one();
            shared.wait_until_served(served);
        }
        handles.into_iter().for_each(|handle| handle.join().unwrap());
        assert_eq!(*shared.permits.lock(), 0);
    }

    #[test]
    fn a_notification_of_all_wakes_all() {
        let shared = Arc::<Permits>::default();
        let handles = shared.waiters(8);
        *shared.permits.lock() += 8;
        shared.condvar.notify_all();
        shared.wait_until_served(8);
        handles.into_iter().for_each(|handle| handle.join().unwrap());
    }

    #[test]
    fn a_wait_ends_at_its_time_and_says_so() {
        let (mutex, condvar) = (Mutex::new(()), Condvar::new());
        let start = Instant::now();
        let mut guard = mutex.lock();
        assert!(!condvar.wait_until(&mut guard, start + Duration::from_millis(20)));
        assert!(start.elapsed() >= Duration::from_millis(20));
        // A time that is past: no wait.
        assert!(!condvar.wait_until(&mut guard, start));
        // A notification from before the wait does not end it.
        condvar.notify_all();
        assert!(!condvar.wait_until(&mut guard, Instant::now() + Duration::from_millis(20)));
        drop(guard);
        assert!(mutex.try_lock().is_some());
    }

    #[test]
    fn a_notification_ends_a_wait_before_its_time() {
        let shared = Arc::<Permits>::default();
        let other = shared.clone();
        let waiter = spawn(move || {
            let mut permits = other.permits.lock();
            other.waiting.fetch_add(1, Ordering::SeqCst);
            other.condvar.wait_until(&mut permits, Instant::now() + LONG) && *permits == 1
        });
        while shared.waiting.load(Ordering::SeqCst) == 0 {
            sleep(Duration::from_millis(1));
        }
        // The waiter has the lock until it waits: what is changed under it can't be missed.
        *shared.permits.lock() = 1;
        shared.condvar.notify_one();
        assert!(waiter.join().unwrap());
    }

    #[test]
    fn nothing_is_missed_between_the_look_and_the_wait() {
        let shared = Arc::<Permits>::default();
        let other = shared.clone();
        let waiter = spawn(move || {
            for _ in 0..2000 {
                let mut permits = other.permits.lock();
                while *permits == 0 {
                    assert!(other.condvar.wait_until(&mut permits, Instant::now() + LONG), "a notification was missed");
                }
                *permits = 0;
                drop(permits);
                other.condvar.notify_one();
            }
        });
        for _ in 0..2000 {
            let mut permits = shared.permits.lock();
            while *permits == 1 {
                assert!(shared.condvar.wait_until(&mut permits, Instant::now() + LONG), "an answer was missed");
            }
            *permits = 1;
            drop(permits);
            shared.condvar.notify_one();
        }
        waiter.join().unwrap();
    }
}

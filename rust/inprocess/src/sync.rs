//! The atomics and locks of the lanes: the real ones, or loom's when the model checker runs
//! (`make model-check`).

#[cfg(not(feature = "loom"))]
pub(crate) use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

#[cfg(not(feature = "loom"))]
pub(crate) use guerdon_core::condvar::Condvar;
#[cfg(not(feature = "loom"))]
pub(crate) use parking_lot::{Mutex, MutexGuard};

#[cfg(feature = "loom")]
pub(crate) use checked::{Condvar, Mutex, MutexGuard};

#[cfg(feature = "loom")]
pub(crate) use loom::sync::atomic::{AtomicBool, AtomicU64, Ordering};

/// loom's locks with the interface of parking_lot's.
#[cfg(feature = "loom")]
mod checked {
    use std::ops::{Deref, DerefMut};
    use std::sync::PoisonError;

    #[derive(Default)]
    pub(crate) struct Mutex<T>(loom::sync::Mutex<T>);

    /// `None` only while a condition is waited for.
    pub(crate) struct MutexGuard<'a, T>(Option<loom::sync::MutexGuard<'a, T>>);

    #[derive(Default)]
    pub(crate) struct Condvar(loom::sync::Condvar);

    impl<T> Mutex<T> {
        pub(crate) fn new(value: T) -> Self {
            Self(loom::sync::Mutex::new(value))
        }

        pub(crate) fn lock(&self) -> MutexGuard<'_, T> {
            MutexGuard(Some(self.0.lock().unwrap_or_else(PoisonError::into_inner)))
        }
    }

    #[expect(clippy::expect_used, reason = "a guard is empty only within `wait`")]
    impl<T> Deref for MutexGuard<'_, T> {
        type Target = T;

        fn deref(&self) -> &T {
            self.0.as_ref().expect("locked")
        }
    }

    #[expect(clippy::expect_used, reason = "a guard is empty only within `wait`")]
    impl<T> DerefMut for MutexGuard<'_, T> {
        fn deref_mut(&mut self) -> &mut T {
            self.0.as_mut().expect("locked")
        }
    }

    impl Condvar {
        pub(crate) fn new() -> Self {
            Self(loom::sync::Condvar::new())
        }

        pub(crate) fn wait<T>(&self, guard: &mut MutexGuard<'_, T>) {
            if let Some(locked) = guard.0.take() {
                guard.0 = Some(self.0.wait(locked).unwrap_or_else(PoisonError::into_inner));
            }
        }

        pub(crate) fn notify_one(&self) {
            self.0.notify_one();
        }

        pub(crate) fn notify_all(&self) {
            self.0.notify_all();
        }
    }
}

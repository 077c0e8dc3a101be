//! The atomics and locks of the engine: the real ones, or loom's in a model check.

#[cfg(not(feature = "loom"))]
pub(crate) use std::sync::atomic::{AtomicU8, AtomicU32, AtomicU64, Ordering};

#[cfg(not(feature = "loom"))]
pub(crate) use parking_lot::Mutex;

#[cfg(feature = "loom")]
pub(crate) use checked::Mutex;

#[cfg(feature = "loom")]
pub(crate) use loom::sync::atomic::{AtomicU8, AtomicU32, AtomicU64, Ordering};

#[cfg(feature = "loom")]
mod checked {
    use std::sync::PoisonError;

    use loom::sync::MutexGuard;

    /// loom's lock with the interface of parking_lot's.
    #[derive(Default)]
    pub(crate) struct Mutex<T>(loom::sync::Mutex<T>);

    impl<T> std::fmt::Debug for Mutex<T> {
        fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
            out.write_str("Mutex(…)")
        }
    }

    impl<T> Mutex<T> {
        pub(crate) fn new(value: T) -> Self {
            Self(loom::sync::Mutex::new(value))
        }

        pub(crate) fn lock(&self) -> MutexGuard<'_, T> {
            self.0.lock().unwrap_or_else(PoisonError::into_inner)
        }
    }
}

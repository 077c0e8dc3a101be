//! The atomics of the concurrent core: the standard library's, or loom's when the model checker runs (`make model-check`).

#[cfg(not(guerdon_loom))]
pub(crate) use std::sync::atomic::{AtomicU8, AtomicU32, AtomicU64, Ordering};

#[cfg(guerdon_loom)]
pub(crate) use loom::sync::atomic::{AtomicU8, AtomicU32, AtomicU64, Ordering};

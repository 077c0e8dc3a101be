//! The processor time of a thread: it tells a function that computes from one that waits.

/// The processor time of the calling thread so far.
#[cfg(not(feature = "loom"))]
pub fn thread_cpu_ns() -> u64 {
    let now = rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
    u64::try_from(now.tv_sec).unwrap_or(0) * 1_000_000_000 + u64::try_from(now.tv_nsec).unwrap_or(0)
}

/// A model's executions must not differ.
#[cfg(feature = "loom")]
pub const fn thread_cpu_ns() -> u64 {
    0
}

//! The times that the lanes measure. They are constant in a model, whose executions must not
//! differ.

#[cfg(not(feature = "loom"))]
mod times {
    use guerdon_core::clock::Clock;
    use rustix::time::{ClockId, clock_gettime};

    #[inline]
    pub fn now_ns(clock: Clock) -> u64 {
        clock.now_ns()
    }

    /// The processor time of the calling thread so far, which distinguishes a function that
    /// computes from one that waits.
    pub fn thread_cpu_ns() -> u64 {
        let now = clock_gettime(ClockId::ThreadCPUTime);
        u64::try_from(now.tv_sec).unwrap_or(0) * 1_000_000_000 + u64::try_from(now.tv_nsec).unwrap_or(0)
    }
}

#[cfg(feature = "loom")]
mod times {
    use guerdon_core::clock::Clock;

    pub const fn now_ns(_: Clock) -> u64 {
        1
    }

    pub const fn thread_cpu_ns() -> u64 {
        0
    }
}

pub use times::{now_ns, thread_cpu_ns};

//! Share of a function's run that holds the interpreter's lock, measured from a second thread.
//!
//! - The thread sleeps for random times without the lock and looks how long it then waits to get it
//!   back; only looks between `enter` and `leave` count.
//! - A look costs the function at most one switch of threads.

use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::sleep;
use std::time::{Duration, Instant};

use pyo3::prelude::*;

use crate::gil::detached;

/// A free lock is taken in less than this, a held one never: its holder is asked to let go first.
const FREE: Duration = Duration::from_micros(20);

#[derive(Default)]
struct Looks {
    all: u64,
    held: u64,
    waited: Duration,
}

/// Looks whether the interpreter's lock is free, at random times.
#[pyclass(frozen, name = "LockSampler", module = "guerdon._native")]
pub struct LockSampler {
    /// True while the function runs. Written by its thread, read by the one that looks.
    inside: AtomicBool,
    stopped: AtomicBool,
    /// Written by the thread that looks, taken by the function's.
    looks: Mutex<Looks>,
}

#[pymethods]
impl LockSampler {
    #[new]
    fn new() -> Self {
        LockSampler { inside: AtomicBool::new(false), stopped: AtomicBool::new(false), looks: Mutex::default() }
    }

    /// Looks until `stop`, `interval` seconds apart on average: it needs a separate thread.
    fn run(&self, py: Python<'_>, interval: f64) {
        let mut place = 0.0_f64;
        while !self.stopped.load(Ordering::Acquire) {
            // The golden ratio spreads the looks evenly and in step with nothing.
            place = (place + 0.618_033_988_75).fract();
            let nap = Duration::try_from_secs_f64(interval * (0.5 + place)).unwrap_or_default();
            let (inside, woke) = detached(py, || {
                sleep(nap);
                (self.inside.load(Ordering::Acquire), Instant::now())
            });
            let waited = woke.elapsed();
            if inside && let Ok(mut looks) = self.looks.lock() {
                looks.all += 1;
                if waited > FREE {
                    looks.held += 1;
                    looks.waited += waited;
                }
            }
        }
    }

    /// The function begins.
    fn enter(&self) {
        self.inside.store(true, Ordering::Release);
    }

    /// The function has ended; what was seen since `enter`: looks, those that found the lock held,
    /// and the seconds that these waited.
    fn leave(&self) -> (u64, u64, f64) {
        self.inside.store(false, Ordering::Release);
        let looks = self.looks.lock().map(|mut looks| std::mem::take(&mut *looks)).unwrap_or_default();
        (looks.all, looks.held, looks.waited.as_secs_f64())
    }

    /// Ends `run` at its next look.
    fn stop(&self) {
        self.stopped.store(true, Ordering::Release);
    }
}

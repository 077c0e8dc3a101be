//! Events on their way to the thread that writes them.
//!
//! Who tells something never waits: it takes the first part that is not locked, its own mostly, and
//! drops the event where all are locked or that part is full.

use std::cell::Cell;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use guerdon_core::condvar::Condvar;
use guerdon_core::tracer::TraceEvent;
use parking_lot::Mutex;
use std::time::{Duration, Instant};

const PARTS: usize = 8;
/// Events that a part holds.
const PART: usize = 1 << 13;

pub(crate) struct EventQueue {
    parts: [Mutex<Vec<TraceEvent>>; PARTS],
    dropped: AtomicU64,
    /// Whether the writer was asked to look. Taken by it.
    asked: Mutex<bool>,
    wake: Condvar,
}

static THREADS: AtomicUsize = AtomicUsize::new(0);

thread_local! {
    static PLACE: Cell<usize> = const { Cell::new(usize::MAX) };
}

/// The part that a thread uses first.
fn own_part() -> usize {
    PLACE
        .try_with(|place| {
            if place.get() == usize::MAX {
                place.set(THREADS.fetch_add(1, Ordering::Relaxed) % PARTS);
            }
            place.get()
        })
        .unwrap_or(0)
}

impl EventQueue {
    pub(crate) fn new() -> Self {
        Self {
            parts: std::array::from_fn(|_| Mutex::default()),
            dropped: AtomicU64::new(0),
            asked: Mutex::new(false),
            wake: Condvar::new(),
        }
    }

    pub(crate) fn push(&self, event: TraceEvent) {
        let own = own_part();
        for offset in 0..PARTS {
            let Some(mut part) = self.parts[(own + offset) % PARTS].try_lock() else { continue };
            if part.len() < PART {
                part.push(event);
                if part.len() == PART / 2 {
                    drop(part);
                    self.ask();
                }
                return;
            }
            break;
        }
        self.dropped.fetch_add(1, Ordering::Relaxed);
    }

    /// Has the writer look now.
    pub(crate) fn ask(&self) {
        // Where it is locked somebody else asks, or the writer is about to look.
        if let Some(mut asked) = self.asked.try_lock() {
            *asked = true;
            self.wake.notify_one();
        }
    }

    /// Waits until the writer is asked to look, for so long at most.
    pub(crate) fn wait(&self, most: Duration) {
        let mut asked = self.asked.lock();
        if !*asked {
            self.wake.wait_until(&mut asked, Instant::now() + most);
        }
        *asked = false;
    }

    /// All that came since the last time; each thread's in its order.
    pub(crate) fn take(&self) -> Vec<TraceEvent> {
        self.parts.iter().flat_map(|part| std::mem::take(&mut *part.lock())).collect()
    }

    pub(crate) fn dropped(&self) -> u64 {
        self.dropped.load(Ordering::Relaxed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_does_not_fit_is_dropped_and_counted() {
        let queue = EventQueue::new();
        let done = |batch| TraceEvent::BatchDone { batch, samples: 1, groups: 1, at_ns: batch };
        (0..PART as u64 + 5).for_each(|batch| queue.push(done(batch)));
        assert_eq!(queue.dropped(), 5);
        let taken = queue.take();
        assert_eq!((taken.len(), &taken[0], &taken[PART - 1]), (PART, &done(0), &done(PART as u64 - 1)));
        queue.push(done(1));
        assert_eq!((queue.take().len(), queue.dropped()), (1, 5));
    }
}

//! Events on their way to the thread that writes them.
//!
//! - A reporting thread never waits: it takes the first part that is not locked, its own mostly,
//!   and drops the event where all are locked or that part is full.
//! - Events are taken in the order in which they were reported, whichever threads reported them:
//!   a worker's task goes from thread to thread.

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
    /// Events with their numbers, which rise in each part.
    parts: [Mutex<Vec<(u64, TraceEvent)>>; PARTS],
    /// The number of the next event. Drawn with the event's part locked: numbers drawn before
    /// somebody locks a part are in it by then.
    next: AtomicU64,
    dropped: AtomicU64,
    /// True if the writer was asked to look. Taken by it.
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
            next: AtomicU64::new(0),
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
                part.push((self.next.fetch_add(1, Ordering::Relaxed), event));
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
        // If it is locked, another thread asks, or the writer is about to look.
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

    /// All that came since the last time, in the order in which it was reported.
    pub(crate) fn take(&self) -> Vec<TraceEvent> {
        // Events that come meanwhile wait for the next time: it may follow an event that comes into
        // a part that was read already.
        let before = self.next.load(Ordering::Relaxed);
        let mut taken = Vec::new();
        for part in &self.parts {
            let mut part = part.lock();
            let later = part.partition_point(|(number, _)| *number < before);
            let later = part.split_off(later);
            taken.append(&mut std::mem::replace(&mut *part, later));
        }
        taken.sort_by_key(|(number, _)| *number);
        taken.into_iter().map(|(_, event)| event).collect()
    }

    pub(crate) fn dropped(&self) -> u64 {
        self.dropped.load(Ordering::Relaxed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn items_without_room_are_dropped_and_counted() {
        let queue = EventQueue::new();
        let done = |batch| TraceEvent::BatchDone { batch, samples: 1, groups: 1, at_ns: batch };
        (0..PART as u64 + 5).for_each(|batch| queue.push(done(batch)));
        assert_eq!(queue.dropped(), 5);
        let taken = queue.take();
        assert_eq!((taken.len(), &taken[0], &taken[PART - 1]), (PART, &done(0), &done(PART as u64 - 1)));
        queue.push(done(1));
        assert_eq!((queue.take().len(), queue.dropped()), (1, 5));
    }

    /// Reports as a worker's task does, which several threads run in turn.
    #[test]
    fn reports_of_threads_in_turn_keep_their_order() {
        const EVENTS: u64 = 20_000;
        let (queue, turn) = (EventQueue::new(), Mutex::new(0));
        let taken = std::thread::scope(|scope| {
            let tell = || {
                loop {
                    let mut next = turn.lock();
                    if *next == EVENTS {
                        return;
                    }
                    queue.push(TraceEvent::BatchDone { batch: *next, samples: 1, groups: 1, at_ns: *next });
                    *next += 1;
                    drop(next);
                    std::thread::yield_now();
                }
            };
            let threads: Vec<_> = (0..3).map(|_| scope.spawn(tell)).collect();
            let mut taken = Vec::new();
            loop {
                let ended = threads.iter().all(std::thread::ScopedJoinHandle::is_finished);
                taken.extend(queue.take());
                if ended {
                    return taken;
                }
            }
        });
        let numbers: Vec<u64> = taken
            .iter()
            .map(|event| if let TraceEvent::BatchDone { batch, .. } = event { *batch } else { 0 })
            .collect();
        assert!(numbers.is_sorted(), "{:?}", numbers.iter().zip(&numbers[1..]).find(|(one, next)| one > next));
        assert_eq!(numbers.len() as u64 + queue.dropped(), EVENTS);
    }
}

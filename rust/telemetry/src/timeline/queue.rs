//! Events on their way to the thread that writes them.
//!
//! - A reporting thread never waits: the channel has no lock, and an event without room is dropped
//!   and counted.
//! - Events are taken in the order in which they were reported, whichever threads reported them:
//!   a worker's task goes from thread to thread.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread::Thread;

use guerdon_core::tracer::TraceEvent;
use parking_lot::Mutex;

/// Events that wait at most, and with how many the writer is to look at once.
const MOST: usize = 1 << 16;
const MANY: usize = 1 << 12;

pub(crate) struct EventQueue {
    sender: Sender<TraceEvent>,
    /// Locked by the writer alone.
    receiver: Mutex<Receiver<TraceEvent>>,
    /// Events in the channel. Raised before an event is in it, and lowered after it was taken.
    waiting: AtomicUsize,
    dropped: AtomicU64,
    /// Set once, before the first event.
    writer: OnceLock<Thread>,
}

impl EventQueue {
    pub(crate) fn new() -> Self {
        let (sender, receiver) = channel();
        Self {
            sender,
            receiver: Mutex::new(receiver),
            waiting: AtomicUsize::new(0),
            dropped: AtomicU64::new(0),
            writer: OnceLock::new(),
        }
    }

    pub(crate) fn push(&self, event: TraceEvent) {
        let before = self.waiting.fetch_add(1, Ordering::Relaxed);
        // The receiver is there as long as the sender is.
        if before >= MOST || self.sender.send(event).is_err() {
            self.waiting.fetch_sub(1, Ordering::Relaxed);
            self.dropped.fetch_add(1, Ordering::Relaxed);
        } else if before + 1 == MANY {
            self.ask();
        }
    }

    /// Has the writer look now.
    pub(crate) fn ask(&self) {
        if let Some(writer) = self.writer.get() {
            writer.unpark();
        }
    }

    /// Says which thread takes the events.
    pub(crate) fn written_by(&self, writer: &Thread) {
        self.writer.get_or_init(|| writer.clone());
    }

    /// All that came since the last time, in the order in which it was reported.
    pub(crate) fn take(&self) -> Vec<TraceEvent> {
        let taken: Vec<TraceEvent> = self.receiver.lock().try_iter().take(MOST).collect();
        self.waiting.fetch_sub(taken.len(), Ordering::Relaxed);
        taken
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
        (0..MOST as u64 + 5).for_each(|batch| queue.push(done(batch)));
        assert_eq!(queue.dropped(), 5);
        let taken = queue.take();
        assert_eq!((taken.len(), &taken[0], &taken[MOST - 1]), (MOST, &done(0), &done(MOST as u64 - 1)));
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

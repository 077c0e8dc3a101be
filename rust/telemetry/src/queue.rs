//! A queue of entries for the thread that writes a journal or a timeline, bounded by rows and by
//! bytes. Producers never wait.
//!
//! - The channel has no lock. An entry without room is dropped, and its rows are counted; so is an
//!   entry that comes after the end.
//! - An entry that has room is taken once, in the order of the pushes of all threads.
//! - The consumer is woken when the queue has as many rows as it waits for, not for each push.

use std::sync::atomic::Ordering::{Relaxed, SeqCst};
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread::{self, Thread};
use std::time::Instant;

use parking_lot::Mutex;

/// Bounds of a queue.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Bounds {
    pub rows: usize,
    pub bytes: usize,
}

struct QueueEntry<T> {
    item: T,
    rows: usize,
    bytes: usize,
}

pub(crate) struct Queue<T> {
    bounds: Bounds,
    sender: Sender<QueueEntry<T>>,
    /// Locked by the consumer.
    receiver: Mutex<Receiver<QueueEntry<T>>>,
    /// Rows and bytes of the entries inside. Raised before an entry is in the channel, and lowered
    /// after it was taken.
    rows: AtomicUsize,
    bytes: AtomicUsize,
    dropped: AtomicU64,
    ended: AtomicBool,
    /// Number of rows that the consumer waits for; `usize::MAX` while it does not wait.
    wanted: AtomicUsize,
    /// Written by `set_consumer`.
    consumer: Mutex<Option<Thread>>,
}

/// State of the queue at the end of a wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct QueueState {
    pub rows: usize,
    pub ended: bool,
}

impl<T> Queue<T> {
    pub(crate) fn new(bounds: Bounds) -> Self {
        let (sender, receiver) = channel();
        Self {
            bounds,
            sender,
            receiver: Mutex::new(receiver),
            rows: AtomicUsize::new(0),
            bytes: AtomicUsize::new(0),
            dropped: AtomicU64::new(0),
            ended: AtomicBool::new(false),
            wanted: AtomicUsize::new(usize::MAX),
            consumer: Mutex::new(None),
        }
    }

    /// Adds an item of `rows` rows and about `bytes` bytes. One alone may have more than the
    /// bounds.
    pub(crate) fn push(&self, item: T, rows: usize, bytes: usize) {
        let had_rows = self.rows.fetch_add(rows, SeqCst);
        let had_bytes = self.bytes.fetch_add(bytes, Relaxed);
        let room = had_rows + rows <= self.bounds.rows && had_bytes.saturating_add(bytes) <= self.bounds.bytes;
        // Read after the rows were raised: the consumer ends when it has seen the end, and no rows
        // after that.
        let refused = self.ended.load(SeqCst) || !(room || had_rows == 0);
        if refused || self.sender.send(QueueEntry { item, rows, bytes }).is_err() {
            self.rows.fetch_sub(rows, SeqCst);
            self.bytes.fetch_sub(bytes, Relaxed);
            self.dropped.fetch_add(rows as u64, Relaxed);
        } else if had_rows + rows >= self.wanted.load(SeqCst) {
            self.wanted.store(usize::MAX, SeqCst);
            self.wake();
        }
    }

    /// Makes this thread the consumer, which the queue wakes. It calls this before it first waits.
    pub(crate) fn set_consumer(&self) {
        *self.consumer.lock() = Some(thread::current());
    }

    /// Ends a wait of the consumer.
    pub(crate) fn wake(&self) {
        if let Some(consumer) = &*self.consumer.lock() {
            consumer.unpark();
        }
    }

    /// Refuses entries from now on.
    pub(crate) fn end(&self) {
        self.ended.store(true, SeqCst);
        self.wake();
    }

    pub(crate) fn has_ended(&self) -> bool {
        self.ended.load(SeqCst)
    }

    /// Waits until there are `rows` rows, `wake` is called, or `until`.
    pub(crate) fn wait_once(&self, rows: usize, until: Option<Instant>) {
        self.wanted.store(rows, SeqCst);
        if self.rows.load(SeqCst) < rows && !self.ended.load(SeqCst) {
            match until {
                None => thread::park(),
                Some(until) => thread::park_timeout(until.saturating_duration_since(Instant::now())),
            }
        }
        self.wanted.store(usize::MAX, SeqCst);
    }

    /// Waits until there are `rows` rows, the end, or `until`.
    pub(crate) fn wait(&self, rows: usize, until: Option<Instant>) -> QueueState {
        loop {
            let ended = self.ended.load(SeqCst);
            let state = QueueState { rows: self.rows.load(SeqCst), ended };
            if ended || state.rows >= rows || until.is_some_and(|until| until <= Instant::now()) {
                return state;
            }
            self.wait_once(rows, until);
        }
    }

    /// Removes and returns the first items, with `rows` rows or a little more; at least one if the
    /// queue is not empty.
    pub(crate) fn take(&self, rows: usize) -> Vec<T> {
        let receiver = self.receiver.lock();
        let mut taken = Vec::new();
        let mut have = 0;
        while have < rows
            && let Ok(QueueEntry { item, rows, bytes }) = receiver.try_recv()
        {
            self.rows.fetch_sub(rows, SeqCst);
            self.bytes.fetch_sub(bytes, Relaxed);
            have += rows;
            taken.push(item);
        }
        taken
    }

    /// Returns the number of rows that were dropped so far.
    pub(crate) fn dropped(&self) -> u64 {
        self.dropped.load(Relaxed)
    }
}

#[cfg(test)]
mod tests {
    use std::collections::VecDeque;
    use std::sync::Arc;
    use std::time::Duration;

    use proptest::prelude::*;

    use super::*;

    fn queue(rows: usize, bytes: usize) -> Queue<usize> {
        Queue::new(Bounds { rows, bytes })
    }

    #[derive(Clone, Debug)]
    enum Step {
        Push { rows: usize, bytes: usize },
        Take(usize),
        End,
    }

    fn steps() -> impl Strategy<Value = Vec<Step>> {
        let step = prop_oneof![
            8 => (1..9_usize, 0..9_usize).prop_map(|(rows, bytes)| Step::Push { rows, bytes }),
            4 => (1..12_usize).prop_map(Step::Take),
            1 => Just(Step::End),
        ];
        prop::collection::vec(step, 0..60)
    }

    proptest! {
        /// Compares the queue with a model: entries with room come out once and in order, and the
        /// others are counted.
        #[test]
        fn admitted_items_come_out_in_order(steps in steps()) {
            let (bounds, queue) = (Bounds { rows: 20, bytes: 20 }, queue(20, 20));
            let mut inside: VecDeque<(usize, usize, usize)> = VecDeque::new();
            let (mut dropped, mut ended, mut number) = (0, false, 0);
            for step in steps {
                match step {
                    Step::Push { rows, bytes } => {
                        number += 1;
                        queue.push(number, rows, bytes);
                        let (had_rows, had_bytes) = inside.iter().fold((0, 0), |sum, one| (sum.0 + one.1, sum.1 + one.2));
                        let fits = had_rows + rows <= bounds.rows && had_bytes + bytes <= bounds.bytes;
                        if ended || !(fits || inside.is_empty()) {
                            dropped += rows as u64;
                        } else {
                            inside.push_back((number, rows, bytes));
                        }
                    }
                    Step::Take(rows) => {
                        let (mut expected, mut have) = (Vec::new(), 0);
                        while have < rows && let Some((number, rows, _)) = inside.pop_front() {
                            expected.push(number);
                            have += rows;
                        }
                        prop_assert_eq!(queue.take(rows), expected);
                    }
                    Step::End => {
                        ended = true;
                        queue.end();
                    }
                }
                let rows = inside.iter().map(|one| one.1).sum::<usize>();
                prop_assert_eq!(queue.wait(0, None), QueueState { rows, ended });
                prop_assert_eq!(queue.dropped(), dropped);
            }
        }
    }

    #[test]
    fn many_push_while_one_takes_and_nothing_is_lost() {
        let queue = Arc::new(queue(usize::MAX, usize::MAX));
        let pushing: Vec<_> = (0..4_usize)
            .map(|thread| {
                let queue = queue.clone();
                thread::spawn(move || (0..2000).for_each(|number| queue.push(thread * 10_000 + number, 1, 1)))
            })
            .collect();
        let taking = {
            let queue = queue.clone();
            thread::spawn(move || {
                let mut taken = Vec::new();
                queue.set_consumer();
                loop {
                    let seen = queue.wait(7, None);
                    taken.extend(queue.take(5));
                    if seen.ended && seen.rows == 0 {
                        return taken;
                    }
                }
            })
        };
        pushing.into_iter().for_each(|thread| thread.join().unwrap());
        queue.end();
        let taken = taking.join().unwrap();
        assert_eq!(taken.len(), 8000);
        for thread in 0..4 {
            let of: Vec<usize> = taken.iter().copied().filter(|number| number / 10_000 == thread).collect();
            assert!(of.is_sorted(), "each thread's in its order");
        }
    }

    #[test]
    fn a_wait_ends_with_enough_rows_with_the_end_and_in_time() {
        let queue = Arc::new(queue(100, 100));
        let soon = Instant::now() + Duration::from_millis(5);
        assert_eq!(queue.wait(1, Some(soon)), QueueState { rows: 0, ended: false });
        let waits = {
            let queue = queue.clone();
            thread::spawn(move || {
                queue.set_consumer();
                queue.wait(3, None)
            })
        };
        queue.push(1, 2, 0);
        queue.push(2, 1, 0);
        assert_eq!(waits.join().unwrap(), QueueState { rows: 3, ended: false });
        let waits = {
            let queue = queue.clone();
            thread::spawn(move || {
                queue.set_consumer();
                queue.wait(30, None)
            })
        };
        queue.end();
        assert_eq!(waits.join().unwrap(), QueueState { rows: 3, ended: true });
    }

    /// Reports as a worker's task does, which several threads run in turn.
    #[test]
    fn entries_of_threads_in_turn_keep_their_order() {
        const EVENTS: usize = 20_000;
        let (queue, turn) = (queue(usize::MAX, usize::MAX), Mutex::new(0));
        let taken = thread::scope(|scope| {
            let tell = || {
                loop {
                    let mut next = turn.lock();
                    if *next == EVENTS {
                        return;
                    }
                    queue.push(*next, 1, 0);
                    *next += 1;
                    drop(next);
                    thread::yield_now();
                }
            };
            let threads: Vec<_> = (0..3).map(|_| scope.spawn(tell)).collect();
            let mut taken = Vec::new();
            loop {
                let ended = threads.iter().all(thread::ScopedJoinHandle::is_finished);
                taken.extend(queue.take(EVENTS));
                if ended {
                    return taken;
                }
            }
        });
        assert_eq!(taken, (0..EVENTS).collect::<Vec<_>>());
    }
}

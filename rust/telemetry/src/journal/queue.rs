//! Rows that wait to be written: bounded by rows and by bytes, and nobody waits to get in.
//!
//! - Groups without room are dropped, and their rows are counted; so is a group that comes after
//!   the end.
//! - A group that was let in is taken once, in order.
//! - The one who takes is woken when there is as much as it waits for, not for each push.

use std::collections::VecDeque;
use std::time::Instant;

use guerdon_core::condvar::Condvar;
use parking_lot::Mutex;

/// Bounds of a queue.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Bounds {
    pub rows: usize,
    pub bytes: usize,
}

struct Entry<T> {
    item: T,
    rows: usize,
    bytes: usize,
}

struct QueueContent<T> {
    waiting: VecDeque<Entry<T>>,
    rows: usize,
    bytes: usize,
    dropped: u64,
    ended: bool,
    /// Number of rows that the taking thread waits for.
    wanted: Option<usize>,
}

pub(crate) struct Queue<T> {
    bounds: Bounds,
    /// Written by those who push, by the one who takes and by who ends it.
    state: Mutex<QueueContent<T>>,
    changed: Condvar,
}

/// State of the queue at the end of a wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct QueueState {
    pub rows: usize,
    pub ended: bool,
}

impl<T> Queue<T> {
    pub(crate) fn new(bounds: Bounds) -> Self {
        let waiting = VecDeque::new();
        let state = QueueContent { waiting, rows: 0, bytes: 0, dropped: 0, ended: false, wanted: None };
        Self { bounds, state: Mutex::new(state), changed: Condvar::new() }
    }

    /// Adds an item of `rows` rows and about `bytes` bytes. One alone may have more than the
    /// bounds.
    pub(crate) fn push(&self, item: T, rows: usize, bytes: usize) {
        let mut state = self.state.lock();
        let room = state.rows + rows <= self.bounds.rows && state.bytes.saturating_add(bytes) <= self.bounds.bytes;
        if state.ended || !(room || state.waiting.is_empty()) {
            state.dropped += rows as u64;
            drop(state);
            drop(item); // not with the lock held
            return;
        }
        state.waiting.push_back(Entry { item, rows, bytes });
        state.rows += rows;
        state.bytes = state.bytes.saturating_add(bytes);
        let enough = state.wanted.is_some_and(|wanted| state.rows >= wanted);
        if enough {
            state.wanted = None;
            drop(state);
            self.changed.notify_one();
        }
    }

    /// Nothing is let in any more.
    pub(crate) fn end(&self) {
        self.state.lock().ended = true;
        self.changed.notify_one();
    }

    /// Waits until there are `rows` rows, the end, or `until`.
    pub(crate) fn wait(&self, rows: usize, until: Option<Instant>) -> QueueState {
        let mut state = self.state.lock();
        while state.rows < rows && !state.ended {
            state.wanted = Some(rows);
            match until {
                None => self.changed.wait(&mut state),
                Some(until) if !self.changed.wait_until(&mut state, until) => break,
                Some(_) => {}
            }
        }
        state.wanted = None;
        QueueState { rows: state.rows, ended: state.ended }
    }

    /// Returns the first items, of `rows` rows or a little more; at least one if there is one.
    pub(crate) fn take(&self, rows: usize) -> Vec<T> {
        let mut state = self.state.lock();
        let mut taken = Vec::new();
        let mut have = 0;
        while have < rows
            && let Some(Entry { item, rows, bytes }) = state.waiting.pop_front()
        {
            state.rows -= rows;
            state.bytes = state.bytes.saturating_sub(bytes);
            have += rows;
            taken.push(item);
        }
        taken
    }

    /// Rows that were dropped so far.
    pub(crate) fn dropped(&self) -> u64 {
        self.state.lock().dropped
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::thread;
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
        /// The queue against a model of it: what is let in comes out once and in order, all else is
        /// counted.
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
            thread::spawn(move || queue.wait(3, None))
        };
        queue.push(1, 2, 0);
        queue.push(2, 1, 0);
        assert_eq!(waits.join().unwrap(), QueueState { rows: 3, ended: false });
        let waits = {
            let queue = queue.clone();
            thread::spawn(move || queue.wait(30, None))
        };
        queue.end();
        assert_eq!(waits.join().unwrap(), QueueState { rows: 3, ended: true });
    }
}

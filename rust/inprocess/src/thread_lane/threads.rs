//! A function's threads. Each has one state at any time, and threads are counted by state: a thread
//! that dies in any state leaves no wrong count.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::sync::Condvar;
use crate::thread_lane::running_frame::RunningFrame;

/// State of a thread.
pub enum ThreadState<F> {
    /// It was requested, and has not requested work yet.
    Ordered,
    /// It has run a frame, and comes for another.
    Arriving,
    /// It waits for work; the condition variable wakes it.
    Waiting(Arc<Condvar>),
    /// It was woken, and has not continued yet.
    Woken(Arc<Condvar>),
    Running(Arc<RunningFrame<F>>),
    /// It is not counted any more, and its results are dropped.
    Abandoned,
}

/// The state without its data.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StateKind {
    Ordered,
    Arriving,
    Waiting,
    Woken,
    Running,
    Abandoned,
}

impl<F> ThreadState<F> {
    const fn kind(&self) -> StateKind {
        match self {
            Self::Ordered => StateKind::Ordered,
            Self::Arriving => StateKind::Arriving,
            Self::Waiting(_) => StateKind::Waiting,
            Self::Woken(_) => StateKind::Woken,
            Self::Running(_) => StateKind::Running,
            Self::Abandoned => StateKind::Abandoned,
        }
    }
}

pub struct Threads<F> {
    all: BTreeMap<u64, ThreadState<F>>,
    /// Number of threads, by `StateKind`; written with `all` alone.
    counts: [usize; 6],
}

impl<F> Threads<F> {
    pub const fn new() -> Self {
        Self { all: BTreeMap::new(), counts: [0; 6] }
    }

    pub const fn count(&self, kind: StateKind) -> usize {
        self.counts[kind as usize]
    }

    /// Number of counted threads.
    pub fn counting(&self) -> usize {
        self.all.len() - self.count(StateKind::Abandoned)
    }

    pub fn get(&self, thread: u64) -> Option<&ThreadState<F>> {
        self.all.get(&thread)
    }

    pub fn running(&self) -> impl Iterator<Item = &Arc<RunningFrame<F>>> {
        self.all.values().filter_map(|state| if let ThreadState::Running(frame) = state { Some(frame) } else { None })
    }

    /// Sets the state of a thread, or removes it; returns the former state.
    pub fn set(&mut self, thread: u64, state: Option<ThreadState<F>>) -> Option<ThreadState<F>> {
        let before = match state {
            Some(state) => {
                self.counts[state.kind() as usize] += 1;
                self.all.insert(thread, state)
            }
            None => self.all.remove(&thread),
        };
        if let Some(before) = &before {
            self.counts[before.kind() as usize] -= 1;
        }
        before
    }

    /// Wakes a waiting thread, if there is one.
    pub fn wake_one(&mut self) -> bool {
        let waits = |(thread, state): (&u64, &ThreadState<F>)| {
            if let ThreadState::Waiting(wake) = state { Some((*thread, wake.clone())) } else { None }
        };
        let Some((thread, wake)) = self.all.iter().find_map(waits) else { return false };
        wake.notify_one();
        self.set(thread, Some(ThreadState::Woken(wake)));
        true
    }

    pub fn wake_all(&self) {
        for state in self.all.values() {
            if let ThreadState::Waiting(wake) | ThreadState::Woken(wake) = state {
                wake.notify_one();
            }
        }
    }
}

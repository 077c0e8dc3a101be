//! Snapshots of what the workers have in hand, for `dump()`.
//!
//! An inspection never waits longer than its bound and changes nothing of the work. It shows every
//! worker with a call in hand, without a stack where the worker can't report one. Sessions answer
//! between two turns of their own.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::{Duration, Instant};

use guerdon_core::in_flight::InFlightCall;
use parking_lot::Mutex;
use tokio::sync::mpsc;

use crate::stack_request::NoStack;

/// What one worker has in hand.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WorkerSnapshot {
    pub call: InFlightCall,
    /// Its process id.
    pub worker: i32,
    /// Its Python stack, outermost frame first.
    pub stack: Result<String, NoStack>,
}

/// Asks a session what its worker has in hand.
pub(super) struct InspectRequest {
    /// How long the worker may take to say where it stands.
    pub within: Duration,
    pub answer: Sender<WorkerSnapshot>,
}

/// The sessions that can be asked, by the pids of their workers.
#[derive(Clone, Default)]
pub(super) struct Inspector {
    /// Written by sessions as they begin and end.
    open: Arc<Mutex<BTreeMap<i32, mpsc::UnboundedSender<InspectRequest>>>>,
}

/// A session's side; it can't be asked any more once this is dropped.
pub(super) struct InspectRequests {
    all: Inspector,
    pid: i32,
    asks: mpsc::UnboundedReceiver<InspectRequest>,
}

impl Inspector {
    pub(super) fn open(&self, pid: i32) -> InspectRequests {
        let (sender, asks) = mpsc::unbounded_channel();
        self.open.lock().insert(pid, sender);
        InspectRequests { all: self.clone(), pid, asks }
    }

    /// What all workers have in hand; waits for it.
    pub(super) fn inspect(&self, within: Duration) -> Vec<WorkerSnapshot> {
        let end = Instant::now() + within;
        let answers = self.ask(within / 4 * 3);
        let mut seen = Vec::new();
        // The channel closes when the last session has answered, or has gone with its question.
        while let Ok(snapshot) = answers.recv_timeout(end.saturating_duration_since(Instant::now())) {
            seen.push(snapshot);
        }
        seen.sort_by_key(|snapshot| snapshot.worker);
        seen
    }

    fn ask(&self, within: Duration) -> Receiver<WorkerSnapshot> {
        let (answer, answers) = channel();
        for session in self.open.lock().values() {
            // One that has ended has nothing in hand.
            let _ = session.send(InspectRequest { within, answer: answer.clone() });
        }
        answers
    }
}

impl InspectRequests {
    /// The next question.
    pub(super) async fn asked(&mut self) -> InspectRequest {
        match self.asks.recv().await {
            Some(ask) => ask,
            // The sender is in the map until this is dropped.
            None => std::future::pending().await,
        }
    }
}

impl Drop for InspectRequests {
    fn drop(&mut self) {
        self.all.open.lock().remove(&self.pid);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use guerdon_core::in_flight::Phase;

    fn snapshot(worker: i32) -> WorkerSnapshot {
        let call = InFlightCall {
            function: 0,
            batch: 1,
            samples: std::iter::once(3..4).collect(),
            others: Vec::new(),
            phase: Phase::Call,
            attempt: 1,
            age_ns: 5,
        };
        WorkerSnapshot { call, worker, stack: Err(NoStack::Silent) }
    }

    #[test]
    fn a_session_that_never_answers_costs_the_bound() {
        let inspector = Inspector::default();
        let _silent = inspector.open(1);
        let mut answers = inspector.open(2);
        let answering = std::thread::spawn(move || {
            let ask = answers.asks.blocking_recv().unwrap();
            ask.answer.send(snapshot(2)).unwrap();
        });
        let start = Instant::now();
        assert_eq!(inspector.inspect(Duration::from_millis(100)), [snapshot(2)]);
        assert!(start.elapsed() >= Duration::from_millis(100) && start.elapsed() < Duration::from_secs(5));
        answering.join().unwrap();
    }

    #[test]
    fn a_session_that_ends_with_its_question_is_not_waited_for() {
        let inspector = Inspector::default();
        let ends = inspector.open(1);
        let ending = std::thread::spawn(move || {
            std::thread::sleep(Duration::from_millis(20));
            drop(ends);
        });
        let start = Instant::now();
        assert_eq!(inspector.inspect(Duration::from_secs(30)), []);
        assert!(start.elapsed() < Duration::from_secs(10));
        ending.join().unwrap();
        assert_eq!(inspector.inspect(Duration::from_secs(30)), []);
    }
}

//! Looking at what the workers have in hand while they work.
//!
//! - X-1  A look never waits longer than its bound, whatever the workers do, and changes nothing of their work.
//! - X-2  It shows every worker that has something in hand; one that can't say where it stands is shown with the reason.
//! - X-3  Sessions answer it between two turns of their own; without a look nothing is done for it.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use tokio::sync::mpsc;

use crate::stack_request::NoStack;
use guerdon_core::in_flight::InFlightCall;

/// What one worker has in hand.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Sight {
    pub doing: InFlightCall,
    /// Its process id.
    pub worker: i32,
    /// Its Python stack, outermost frame first.
    pub stack: Result<String, NoStack>,
}

/// Asks a session what its worker has in hand.
pub(super) struct Ask {
    /// How long the worker may take to say where it stands.
    pub within: Duration,
    pub answer: Sender<Sight>,
}

/// The sessions that can be asked, by the pids of their workers.
#[derive(Clone, Default)]
pub(super) struct Windows {
    /// Written by sessions as they begin and end.
    open: Arc<Mutex<BTreeMap<i32, mpsc::UnboundedSender<Ask>>>>,
}

/// A session's side; it can't be asked any more once this is dropped.
pub(super) struct Window {
    all: Windows,
    pid: i32,
    asks: mpsc::UnboundedReceiver<Ask>,
}

impl Windows {
    pub(super) fn open(&self, pid: i32) -> Window {
        let (sender, asks) = mpsc::unbounded_channel();
        self.open.lock().insert(pid, sender);
        Window { all: self.clone(), pid, asks }
    }

    /// What all workers have in hand; waits for it.
    pub(super) fn look(&self, within: Duration) -> Vec<Sight> {
        let end = Instant::now() + within;
        let answers = self.ask(within / 4 * 3);
        let mut seen = Vec::new();
        // The channel closes when the last session has answered, or has gone with its question.
        while let Ok(sight) = answers.recv_timeout(end.saturating_duration_since(Instant::now())) {
            seen.push(sight);
        }
        seen.sort_by_key(|sight| sight.worker);
        seen
    }

    fn ask(&self, within: Duration) -> Receiver<Sight> {
        let (answer, answers) = channel();
        for session in self.open.lock().values() {
            // One that has ended has nothing in hand.
            let _ = session.send(Ask { within, answer: answer.clone() });
        }
        answers
    }
}

impl Window {
    /// The next question.
    pub(super) async fn asked(&mut self) -> Ask {
        match self.asks.recv().await {
            Some(ask) => ask,
            // The sender is in the map until this is dropped.
            None => std::future::pending().await,
        }
    }
}

impl Drop for Window {
    fn drop(&mut self) {
        self.all.open.lock().remove(&self.pid);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use guerdon_core::in_flight::Phase;

    fn sight(worker: i32) -> Sight {
        let doing = InFlightCall {
            function: 0,
            batch: 1,
            samples: std::iter::once(3..4).collect(),
            others: Vec::new(),
            phase: Phase::Call,
            attempt: 1,
            age_ns: 5,
        };
        Sight { doing, worker, stack: Err(NoStack::Silent) }
    }

    #[test]
    fn x1_a_session_that_never_answers_costs_the_bound() {
        let windows = Windows::default();
        let _silent = windows.open(1);
        let mut answers = windows.open(2);
        let answering = std::thread::spawn(move || {
            let ask = answers.asks.blocking_recv().unwrap();
            ask.answer.send(sight(2)).unwrap();
        });
        let start = Instant::now();
        assert_eq!(windows.look(Duration::from_millis(100)), [sight(2)]);
        assert!(start.elapsed() >= Duration::from_millis(100) && start.elapsed() < Duration::from_secs(5));
        answering.join().unwrap();
    }

    #[test]
    fn x2_a_session_that_ends_with_its_question_is_not_waited_for() {
        let windows = Windows::default();
        let ends = windows.open(1);
        let ending = std::thread::spawn(move || {
            std::thread::sleep(Duration::from_millis(20));
            drop(ends);
        });
        let start = Instant::now();
        assert_eq!(windows.look(Duration::from_secs(30)), []);
        assert!(start.elapsed() < Duration::from_secs(10));
        ending.join().unwrap();
        assert_eq!(windows.look(Duration::from_secs(30)), []);
    }
}

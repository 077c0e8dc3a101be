//! Snapshots of what the workers have in hand, for `dump()`.
//!
//! An inspection changes nothing of the work. It shows every worker with a call in hand, without a
//! stack where the worker can't report one. Sessions answer between two of their turns.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::mpsc::Sender;
use std::time::Duration;

use guerdon_core::in_flight::InFlight;
use parking_lot::Mutex;
use tokio::sync::mpsc;

/// Asks a session what its worker has in hand.
pub(super) struct InspectRequest {
    /// Time that the worker has to report its location.
    pub within: Duration,
    pub answer: Sender<InFlight>,
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

    /// Asks what all workers have in hand. The channel closes when the last session has answered,
    /// or has gone with its question.
    pub(super) fn ask(&self, within: Duration, answer: &Sender<InFlight>) {
        for session in self.open.lock().values() {
            // One that has ended has nothing in hand.
            let _ = session.send(InspectRequest { within: within / 4 * 3, answer: answer.clone() });
        }
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
    use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};

    use super::*;
    use crate::stack_request::NoStack;
    use guerdon_core::in_flight::{InFlightCall, Location, Phase, Stack};

    fn snapshot(worker: i32) -> InFlight {
        let call = InFlightCall {
            function: 0,
            batch: 1,
            samples: std::iter::once(3..4).collect(),
            others: Vec::new(),
            phase: Phase::Call,
            attempt: 1,
            age_ns: 5,
        };
        InFlight { call, location: Location::Worker(worker), stack: Stack::found(Err(NoStack::Silent)) }
    }

    fn ask(inspector: &Inspector, within: Duration) -> Receiver<InFlight> {
        let (answer, answers) = channel();
        inspector.ask(within, &answer);
        answers
    }

    #[test]
    fn a_session_that_never_answers_keeps_nobody_from_answering() {
        let inspector = Inspector::default();
        let _silent = inspector.open(1);
        let mut answers = inspector.open(2);
        let answering = std::thread::spawn(move || {
            let ask = answers.asks.blocking_recv().unwrap();
            ask.answer.send(snapshot(2)).unwrap();
        });
        let answers = ask(&inspector, Duration::from_millis(100));
        assert_eq!(answers.recv_timeout(Duration::from_secs(5)), Ok(snapshot(2)));
        assert_eq!(answers.recv_timeout(Duration::from_millis(100)), Err(RecvTimeoutError::Timeout));
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
        let patience = Duration::from_secs(10);
        let answers = ask(&inspector, Duration::from_secs(30));
        assert_eq!(answers.recv_timeout(patience), Err(RecvTimeoutError::Disconnected));
        ending.join().unwrap();
        let answers = ask(&inspector, Duration::from_secs(30));
        assert_eq!(answers.recv_timeout(patience), Err(RecvTimeoutError::Disconnected));
    }
}

//! A frame without a scheduler, for tests and models: it notes how each call ended, and fails the
//! test when one ends twice.

use std::ops::Range;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use guerdon_core::clock::nanos;
use guerdon_core::function::FunctionId;
use guerdon_core::outcome::{Failure, Times};

use crate::frame::{CallFrame, Timeouts};

#[derive(Default)]
struct Notes {
    ends: Vec<String>,
    swept: Vec<bool>,
    setup_failure: String,
}

/// Clones are the same frame: one for the lane, one for the test.
#[derive(Clone)]
pub(crate) struct FakeFrame(Arc<Mutex<Notes>>);

impl FakeFrame {
    pub fn new(calls: usize) -> Self {
        let notes = Notes { ends: vec![String::new(); calls], swept: vec![false; calls], ..Notes::default() };
        Self(Arc::new(Mutex::new(notes)))
    }

    fn notes(&self) -> MutexGuard<'_, Notes> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn end(&self, call: usize, how: String) {
        let end = &mut self.notes().ends[call];
        assert!(end.is_empty(), "call {call} ended twice: {end}, {how}");
        *end = how;
    }

    /// The call gave a number.
    pub fn complete(&self, call: usize) {
        self.end(call, "completed".to_owned());
    }

    /// The scheduler ends a call.
    pub fn sweep(&self, call: usize) {
        self.notes().swept[call] = true;
    }

    /// Returns the end of each call; empty where it has not.
    pub fn ends(&self) -> Vec<String> {
        self.notes().ends.clone()
    }

    #[cfg(not(feature = "loom"))]
    pub fn setup_failure(&self) -> String {
        self.notes().setup_failure.clone()
    }

    /// The lane holds it no more.
    pub fn is_dropped(&self) -> bool {
        Arc::strong_count(&self.0) == 1
    }
}

impl CallFrame for FakeFrame {
    fn id(&self) -> u64 {
        7
    }

    fn function_id(&self) -> FunctionId {
        0
    }

    fn calls(&self) -> usize {
        self.notes().ends.len()
    }

    fn is_pending(&self, call: usize) -> bool {
        self.notes().ends[call].is_empty()
    }

    fn is_open(&self, call: usize) -> bool {
        !self.notes().swept[call]
    }

    fn fail(&mut self, call: usize, failure: Failure, _: Times) {
        let stack = if failure.traceback.is_some() { " (with a stack)" } else { "" };
        self.end(call, format!("{}{stack}", failure.reason));
    }

    fn fail_setup(&mut self, reason: String, _: Option<String>) {
        self.notes().setup_failure = reason;
    }

    fn time_out_setup(&mut self, _: Option<String>) {
        self.notes().setup_failure = "timed out".to_owned();
    }

    fn give_back(&mut self, calls: Range<usize>) {
        calls.for_each(|call| self.end(call, "given back".to_owned()));
    }

    fn complete_ended(&mut self) {}

    fn observe(&mut self, _: u64) {}
}

impl Timeouts {
    pub fn of(call: Duration, grace: Duration, setup: Duration) -> Self {
        Self { call, call_ns: nanos(call), grace_ns: nanos(grace), setup_ns: nanos(setup) }
    }
}

//! Interface of a frame to the lanes, so that tests and models can run them on frames without a
//! scheduler.

use std::ops::Range;
use std::time::Duration;

use guerdon_core::clock::nanos;
use guerdon_core::frame::Frame;
use guerdon_core::function::{FunctionId, Policy};
use guerdon_core::outcome::{Failure, Times};
use guerdon_core::tracer::{Executor, Moment};

/// Calls of one function, handed to a lane; see `guerdon_core::frame::Frame`, which is one.
pub trait CallFrame: Send + 'static {
    fn id(&self) -> u64;
    fn function_id(&self) -> FunctionId;
    /// Number of calls.
    fn calls(&self) -> usize;
    fn is_pending(&self, call: usize) -> bool;
    fn is_open(&self, call: usize) -> bool;
    fn fail(&mut self, call: usize, failure: Failure, times: Times);
    fn fail_setup(&mut self, reason: String, traceback: Option<String>);
    fn time_out_setup(&mut self, last_seen: Option<String>);
    fn give_back(&mut self, calls: Range<usize>);
    fn complete_ended(&mut self);
    fn observe(&mut self, run_ns: u64);

    /// Sets where its calls run from now on, for timelines.
    fn set_executor(&mut self, _place: impl FnOnce() -> Executor) {}

    /// Reports to a timeline that this thread hangs in its call.
    fn trace_abandoned(&self, _thread: u64) {}
}

impl CallFrame for Frame {
    fn id(&self) -> u64 {
        self.id()
    }

    fn function_id(&self) -> FunctionId {
        self.function_id()
    }

    fn calls(&self) -> usize {
        self.len()
    }

    fn is_pending(&self, call: usize) -> bool {
        self.is_pending(call)
    }

    fn is_open(&self, call: usize) -> bool {
        self.is_open(call)
    }

    fn fail(&mut self, call: usize, failure: Failure, times: Times) {
        self.fail(call, failure, times);
    }

    fn fail_setup(&mut self, reason: String, traceback: Option<String>) {
        self.fail_setup(reason, traceback);
    }

    fn time_out_setup(&mut self, last_seen: Option<String>) {
        self.time_out_setup(last_seen);
    }

    fn give_back(&mut self, calls: Range<usize>) {
        self.give_back(calls);
    }

    fn complete_ended(&mut self) {
        self.complete_ended();
    }

    fn observe(&mut self, run_ns: u64) {
        self.observe(run_ns);
    }

    fn set_executor(&mut self, executor: impl FnOnce() -> Executor) {
        self.set_executor(executor);
    }

    fn trace_abandoned(&self, thread: u64) {
        self.trace_moment(Moment::ThreadAbandoned, Executor::Thread(thread));
    }
}

/// Time limits of a function's calls, and of its `setup()`.
#[derive(Clone, Copy, Debug)]
pub struct Timeouts {
    pub call: Duration,
    pub call_ns: u64,
    pub grace_ns: u64,
    pub setup_ns: u64,
}

impl From<&Policy> for Timeouts {
    fn from(policy: &Policy) -> Self {
        Self {
            call: policy.timeout,
            call_ns: nanos(policy.timeout),
            grace_ns: nanos(policy.grace),
            setup_ns: nanos(policy.setup_timeout),
        }
    }
}

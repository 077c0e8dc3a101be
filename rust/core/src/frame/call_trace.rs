//! Trace of a frame's ended calls for its engine's tracer. Frames without a tracer don't have one.

use std::sync::Arc;

use crate::observer::Telemetry;
use crate::tracer::{CallSpan, Executor};

/// Trace of the calls that ended.
pub(super) struct FrameTrace {
    pub tracer: Arc<dyn Telemetry>,
    pub shortest_ns: u64,
    pub executor: Executor,
    pub first: usize,
    pub ran: usize,
    /// Number of these calls that are not completed yet.
    pub waiting: usize,
    pub given_back: usize,
    pub ready_ns: u64,
    pub started_ns: u64,
    pub last_start_ns: u64,
    pub ended_ns: u64,
    pub calls: Vec<CallSpan>,
}

impl FrameTrace {
    pub(super) fn new(tracer: &Arc<dyn Telemetry>) -> Box<Self> {
        Box::new(Self {
            shortest_ns: tracer.shortest_ns().unwrap_or_default(),
            tracer: tracer.clone(),
            executor: Executor::Elsewhere,
            first: 0,
            ran: 0,
            waiting: 0,
            given_back: 0,
            ready_ns: u64::MAX,
            started_ns: u64::MAX,
            last_start_ns: 0,
            ended_ns: 0,
            calls: Vec::new(),
        })
    }

    pub(super) const fn gave_back(&mut self, calls: usize) {
        self.given_back += calls;
    }
}

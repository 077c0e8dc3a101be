//! Reports the calls of a frame to its engine's tracer.

use crate::call::CallKind;
use crate::frame::Frame;
use crate::frame::call_trace::FrameTrace;
use crate::frame::ended::EndedCall;
use crate::outcome::{Answer, Cell, Failure, Status, Times};
use crate::tracer::{CallSpan, Executor, FrameSpan, Moment, SentFrame, TraceEvent};

/// Calls that are reported together at most: a frame may have thousands.
const MOST_CALLS: usize = 128;
/// Maximum length of a reason, in characters.
const REASON: usize = 200;

/// The status that a value is completed with.
pub(super) fn status_of(cell: &Cell) -> Status {
    match cell {
        Cell::Value(value) if value.is_finite() => Status::Ok,
        Cell::Abstained => Status::Abstained,
        Cell::Value(_) | Cell::Invalid(_) => Status::Error,
        Cell::Reported(reported) => reported.0,
    }
}

/// End of an attempt, for the tracer.
#[derive(Clone, Copy)]
pub(super) struct AttemptEnd<'a> {
    status: Status,
    deferred: bool,
    reason: Option<&'a str>,
}

impl AttemptEnd<'_> {
    pub(super) const fn of(status: Status) -> Self {
        Self { status, deferred: false, reason: None }
    }
}

impl<'a> From<&'a Failure> for AttemptEnd<'a> {
    fn from(failure: &'a Failure) -> Self {
        let deferred = failure.answer.is_some_and(Answer::is_later);
        Self { status: failure.kind.status(), deferred, reason: Some(&failure.reason) }
    }
}

impl Frame {
    /// Sets where the calls run, for timelines; `executor` is called only if there is a tracer.
    pub fn set_executor(&mut self, executor: impl FnOnce() -> Executor) {
        if self.trace.is_none() {
            return;
        }
        let (executor, first) = (executor(), if self.is_empty() { 0 } else { self.first(0) });
        let (frame, function, batch, calls) = (self.id, self.function, self.batch().number(), self.len());
        let at_ns = self.clock.now_ns();
        if let Some(trace) = &mut self.trace {
            if matches!(executor, Executor::Worker(_)) && calls > 0 {
                let executor = executor.clone();
                let sent = SentFrame { frame, executor, function, batch, first, calls, at_ns };
                trace.tracer.record(TraceEvent::FrameSent(sent));
            }
            trace.executor = executor;
        }
    }

    fn span(&self, call: usize, end: AttemptEnd<'_>, times: Times) -> CallSpan {
        let (batch, first) = self.of(call).next().map_or((self.batch(), 0), |(slice, one)| (slice.batch(), one.first));
        let short = |why: &str| {
            why.lines().next().unwrap_or_default().chars().take(REASON).collect::<String>().into_boxed_str()
        };
        CallSpan {
            batch: batch.number(),
            first,
            samples: self.size(call),
            attempt: self.attempt(call),
            finish: self.kind == CallKind::Finish,
            status: end.status,
            deferred: end.deferred,
            ready_ns: batch.ready_ns(first, self.function),
            started_ns: times.started_ns,
            run_ns: times.run_ns,
            reason: end.reason.map(short),
        }
    }

    /// Reports a moment of the running call.
    pub fn trace_moment(&self, what: Moment, executor: Executor) {
        if let Some(trace) = &self.trace {
            let (function, at_ns) = (Some(self.function), self.clock.now_ns());
            trace.tracer.record(TraceEvent::Moment { what, executor, function, at_ns, why: String::new() });
        }
    }

    /// Records that a call has ended.
    #[inline]
    pub(super) fn trace_end<'a>(&mut self, call: usize, end: impl Into<AttemptEnd<'a>>, times: Times) {
        if self.trace.is_some() && times.started_ns != 0 {
            self.trace_one(call, end.into(), times);
        }
    }

    fn trace_one(&mut self, call: usize, end: AttemptEnd<'_>, times: Times) {
        let Some(mut trace) = self.trace.take() else { return };
        // Calls reported together must not reach beyond a call that is reported later.
        self.trace_waiting(&mut trace);
        self.trace_into(&mut trace, call, end, times);
        self.trace = Some(trace);
    }

    /// Records that calls which ended with numbers are about to be completed.
    pub(super) fn trace_numbers(&mut self) {
        let Some(mut trace) = self.trace.take() else { return };
        self.trace_waiting(&mut trace);
        trace.waiting = 0;
        self.trace = Some(trace);
    }

    /// Reports the calls that are about to be completed.
    fn trace_waiting(&self, trace: &mut FrameTrace) {
        let waiting = self.ended.all();
        for EndedCall { call, value, times } in &waiting[trace.waiting..] {
            if times.started_ns != 0 {
                self.trace_into(trace, *call, AttemptEnd::of(status_of(&Cell::Value(*value))), *times);
            }
        }
        trace.waiting = waiting.len();
    }

    fn trace_into(&self, trace: &mut FrameTrace, call: usize, end: AttemptEnd<'_>, times: Times) {
        let Times { started_ns, run_ns } = times;
        let shown = run_ns >= trace.shortest_ns || !end.status.is_answer() || self.attempt(call) > 1;
        if shown && !trace.executor.is_in_turn() {
            let span = Box::new(self.span(call, end, times));
            trace.tracer.record(TraceEvent::Call { executor: trace.executor.clone(), function: self.function, span });
            return;
        }
        // A worker reports failures before the numbers of earlier calls.
        if started_ns < trace.started_ns {
            trace.first = self.first(call);
            trace.ready_ns = self
                .of(call)
                .next()
                .map_or(started_ns, |(slice, one)| slice.batch().ready_ns(one.first, self.function));
        }
        trace.ran += 1;
        trace.started_ns = trace.started_ns.min(started_ns);
        trace.last_start_ns = trace.last_start_ns.max(started_ns);
        trace.ended_ns = trace.ended_ns.max(started_ns.saturating_add(run_ns));
        if shown {
            trace.calls.push(self.span(call, end, times));
            if trace.calls.len() == MOST_CALLS {
                self.report_calls(trace);
            }
        }
    }

    /// Reports that the frame has ended.
    pub(super) fn trace_frame(&mut self) {
        let Some(mut trace) = self.trace.take() else { return };
        let is_seen = matches!(trace.executor, Executor::Worker(_));
        if trace.ran > 0 || trace.given_back > 0 || is_seen {
            self.report_calls(&mut trace);
        }
    }

    /// Reports the calls that ended since the last report.
    fn report_calls(&self, trace: &mut FrameTrace) {
        let span = Box::new(FrameSpan {
            frame: self.id,
            batch: self.batch().number(),
            first: trace.first,
            ran: std::mem::take(&mut trace.ran),
            given_back: std::mem::take(&mut trace.given_back),
            ready_ns: trace.ready_ns,
            started_ns: std::mem::replace(&mut trace.started_ns, u64::MAX),
            ended_ns: std::mem::take(&mut trace.ended_ns),
            last_start_ns: std::mem::take(&mut trace.last_start_ns),
            calls: std::mem::take(&mut trace.calls),
        });
        trace.tracer.record(TraceEvent::Frame { executor: trace.executor.clone(), function: self.function, span });
    }

    pub(super) fn trace_given_back(&mut self, calls: usize) {
        if let Some(trace) = &mut self.trace {
            trace.gave_back(calls);
        }
    }
}

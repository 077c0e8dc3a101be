//! Events of an engine, which a timeline draws. Calls are reported at their end, together with
//! their start, so a span is always complete.

use std::sync::Arc;

use crate::function::FunctionId;
use crate::outcome::Status;

/// Location of a running call.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Executor {
    /// The lane does not report a location, or the call is several requests.
    #[default]
    Elsewhere,
    /// A slot for a worker process.
    Worker(usize),
    /// A lane thread of this process.
    Thread(u64),
    /// An event loop.
    Loop(usize),
    /// A server, as its URL names it.
    Endpoint(Arc<str>),
}

impl Executor {
    /// Returns whether its calls run one after the other.
    #[must_use]
    pub const fn is_in_turn(&self) -> bool {
        matches!(self, Self::Worker(_) | Self::Thread(_))
    }
}

/// One attempt of a call, from the start of user code to its end.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CallSpan {
    pub batch: u64,
    /// The first sample that it covers, and how many.
    pub first: usize,
    pub samples: usize,
    pub attempt: u16,
    /// It is a `finish_group` call.
    pub finish: bool,
    pub status: Status,
    /// True if the other side had too many requests: the attempt failed, but the call did not.
    pub deferred: bool,
    /// The time when the call became possible.
    pub ready_ns: u64,
    pub started_ns: u64,
    pub run_ns: u64,
    /// Reason of its failure: the beginning of the first line.
    pub reason: Option<Box<str>>,
}

impl CallSpan {
    /// Returns whether it counts as a failure.
    #[must_use]
    pub const fn has_failed(&self) -> bool {
        self.status.is_failure() && !self.deferred
    }

    /// Returns the status in timelines.
    #[must_use]
    pub const fn word(&self) -> &'static str {
        if self.deferred { "deferred" } else { self.status.word() }
    }

    #[must_use]
    pub const fn ended_ns(&self) -> u64 {
        self.started_ns.saturating_add(self.run_ns)
    }
}

/// A frame that was sent to a worker.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SentFrame {
    pub frame: u64,
    pub executor: Executor,
    pub function: FunctionId,
    pub batch: u64,
    /// The first sample of the first call.
    pub first: usize,
    pub calls: usize,
    pub at_ns: u64,
}

/// Calls of one frame that ran one after the other, or too shortly for separate reports.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FrameSpan {
    pub frame: u64,
    pub batch: u64,
    /// The first sample of the first call.
    pub first: usize,
    /// Number of calls that ran, and number of calls that were given back.
    pub ran: usize,
    pub given_back: usize,
    pub ready_ns: u64,
    /// Start of the first call; the end is that of the last.
    pub started_ns: u64,
    pub ended_ns: u64,
    /// When the last of its calls started.
    pub last_start_ns: u64,
    /// Calls of the frame that are reported one by one.
    pub calls: Vec<CallSpan>,
}

/// An event at one moment.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Moment {
    /// A worker is ready for calls.
    WorkerReady,
    /// The engine killed a worker.
    WorkerKilled,
    /// A worker ended without being killed by the engine.
    WorkerDied,
    /// A worker replaced another in its slot.
    WorkerRestarted,
    /// A circuit breaker opened.
    BreakerOpened,
    /// Requests time out, and none is answered.
    EndpointHangs,
    /// A server's `Retry-After` is longer than the limiter waits.
    LongRetryAfter,
    /// A server has throttled every request for some time.
    AllThrottled,
    /// A thread hangs, and another took its place.
    ThreadAbandoned,
}

impl Moment {
    /// Returns the name in timelines.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::WorkerReady => "worker ready",
            Self::WorkerKilled => "worker killed",
            Self::WorkerDied => "worker died",
            Self::WorkerRestarted => "worker restarted",
            Self::BreakerOpened => "circuit breaker opened",
            Self::EndpointHangs => "endpoint hangs",
            Self::LongRetryAfter => "long Retry-After",
            Self::AllThrottled => "all throttled",
            Self::ThreadAbandoned => "thread abandoned",
        }
    }
}

/// Event of an engine.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum TraceEvent {
    BatchSubmitted {
        batch: u64,
        step: Option<u64>,
        samples: usize,
        groups: usize,
        at_ns: u64,
    },
    /// All its groups are complete.
    BatchDone {
        batch: u64,
        samples: usize,
        groups: usize,
        at_ns: u64,
    },
    FrameSent(SentFrame),
    /// A frame has ended.
    Frame {
        executor: Executor,
        function: FunctionId,
        span: Box<FrameSpan>,
    },
    /// A call that ran beside others has ended.
    Call {
        executor: Executor,
        function: FunctionId,
        span: Box<CallSpan>,
    },
    Moment {
        what: Moment,
        executor: Executor,
        function: Option<FunctionId>,
        at_ns: u64,
        why: String,
    },
}

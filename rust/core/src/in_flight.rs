//! Snapshots of the calls in flight, for `dump()`, the live state, the watchdog and timelines. The
//! calls in a snapshot may have ended meanwhile, so no decision depends on one.

use std::fmt::{self, Display};
use std::ops::Range;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::frame::Frame;
use crate::function::FunctionId;
use crate::tracer::Executor;

/// Progress of a call that a lane has.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Phase {
    /// The function runs.
    Call,
    /// Its arguments are being made.
    Arguments,
    /// Its `setup()` runs.
    Setup,
    /// The function is being loaded.
    Loading,
}

impl Phase {
    /// Returns the name in `guerdon.InFlight`.
    #[must_use]
    pub const fn word(self) -> &'static str {
        match self {
            Self::Call => "call",
            Self::Arguments => "arguments",
            Self::Setup => "setup",
            Self::Loading => "loading",
        }
    }
}

/// A call in flight, its location and its stack.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct InFlight {
    pub call: InFlightCall,
    pub location: Location,
    pub stack: Stack,
}

impl InFlight {
    /// Returns whether both are snapshots of the same call.
    #[must_use]
    pub fn is_of_call(&self, other: &Self) -> bool {
        let key = |one: &Self| {
            let call = &one.call;
            (call.function, call.batch, call.attempt, call.phase, call.samples.first().cloned())
        };
        self.location == other.location && key(self) == key(other)
    }
}

/// Location of a running call.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Location {
    /// A worker process, by its id.
    Worker(i32),
    /// A lane thread of this process: its number, and Python's identifier of it.
    Thread { number: u64, ident: u64 },
    /// An event loop, with the call's frame and its index in that frame.
    Loop { index: usize, name: String, generation: u64, frame: u64, number: usize },
    /// A server, as its URL names it.
    Server(String),
    /// A native thread.
    Native,
    /// Another node, and the location there; empty if the node did not report it.
    Node { name: Arc<str>, inner: String },
}

/// The form that `guerdon top` shows.
impl Display for Location {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Worker(pid) => write!(out, "{pid}"),
            Self::Thread { number, .. } => write!(out, "thread {number}"),
            Self::Loop { name, .. } => write!(out, "loop {name}"),
            Self::Server(server) => out.write_str(server),
            Self::Native => out.write_str("native thread"),
            Self::Node { name, inner } if inner.is_empty() => write!(out, "node {name}"),
            Self::Node { name, inner } => write!(out, "node {name} {inner}"),
        }
    }
}

/// The executor that a timeline draws for the location.
impl From<Location> for Executor {
    fn from(location: Location) -> Self {
        match location {
            Location::Thread { number, .. } => Self::Thread(number),
            Location::Loop { index, .. } => Self::Loop(index),
            Location::Server(server) => Self::Endpoint(server.into()),
            Location::Worker(_) | Location::Native | Location::Node { .. } => Self::Elsewhere,
        }
    }
}

/// Position of a call in its code.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Stack {
    /// The Python stack, outermost frame first.
    Text(String),
    /// The stack could not be read, for this reason.
    Absent(String),
    /// The stack is in this process, where only Python can read it.
    AskPython,
}

impl Stack {
    /// Makes a stack of the result of a search for it.
    pub fn found(found: Result<String, impl Display>) -> Self {
        found.map_or_else(|why| Self::Absent(why.to_string()), Self::Text)
    }

    /// Returns the text, or the reason for its absence.
    pub fn text(self) -> Result<String, String> {
        match self {
            Self::Text(stack) => Ok(stack),
            Self::Absent(why) => Err(why),
            Self::AskPython => Err("not asked for".to_owned()),
        }
    }
}

/// A running call, or a preparation that the calls of a frame wait for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct InFlightCall {
    pub function: FunctionId,
    /// The batch's number, from 1.
    pub batch: u64,
    /// The samples of the call, or all samples that wait for the preparation.
    pub samples: Vec<Range<usize>>,
    /// Samples of other batches in a call on gathered samples, by the number of the batch.
    pub others: Vec<(u64, Vec<Range<usize>>)>,
    pub phase: Phase,
    /// Number of this attempt, from 1.
    pub attempt: u16,
    pub age_ns: u64,
}

impl InFlightCall {
    /// A call of a frame.
    #[must_use]
    pub fn call(frame: &Frame, call: usize, age_ns: u64) -> Self {
        Self::of(frame, &[call], Phase::Call, frame.attempt(call), age_ns)
    }

    /// The preparation that those calls of a frame wait for that have not ended.
    #[must_use]
    pub fn before(frame: &Frame, phase: Phase, age_ns: u64) -> Self {
        let waiting: Vec<usize> = (0..frame.len()).filter(|call| frame.is_pending(*call)).collect();
        let attempt = waiting.first().map_or(1, |call| frame.attempt(*call));
        Self::of(frame, &waiting, phase, attempt, age_ns)
    }

    fn of(frame: &Frame, calls: &[usize], phase: Phase, attempt: u16, age_ns: u64) -> Self {
        let mut samples: Vec<Vec<usize>> = vec![Vec::new(); frame.slices().len()];
        for (slice, sample) in calls.iter().flat_map(|call| frame.samples_by_slice(*call)) {
            samples[slice].push(sample);
        }
        let slices = frame.slices().iter().zip(samples).filter(|(_, samples)| !samples.is_empty());
        let mut slices = slices.map(|(slice, samples)| (slice.batch().number(), spans(samples.into_iter())));
        let (batch, samples) = slices.next().unwrap_or_else(|| (frame.batch().number(), Vec::new()));
        let others = slices.collect();
        Self { function: frame.function_id(), batch, samples, others, phase, attempt, age_ns }
    }
}

/// Joins consecutive samples into ranges.
fn spans(samples: impl Iterator<Item = usize>) -> Vec<Range<usize>> {
    let mut spans: Vec<Range<usize>> = Vec::new();
    for sample in samples {
        match spans.last_mut() {
            Some(last) if last.end == sample => last.end = sample + 1,
            _ => spans.push(sample..sample + 1),
        }
    }
    spans
}

//! Snapshots of the calls in flight, for `dump()`. What they show may have ended meanwhile; nothing
//! is decided by them.

use std::ops::Range;

use crate::frame::Frame;
use crate::function::FunctionId;

/// How far a call is that a lane has in hand.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Phase {
    /// The function runs.
    Call,
    /// Its arguments are made.
    Arguments,
    /// Its `setup()` runs.
    Setup,
    /// It is being loaded.
    Loading,
}

impl Phase {
    /// As `guerdon.InFlight` calls it.
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

/// A call in hand, or what has to come before the calls of a frame.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct InFlightCall {
    pub function: FunctionId,
    /// The batch's number, from 1.
    pub batch: u64,
    /// The samples of the call, or all those that wait for the phase to end.
    pub samples: Vec<Range<usize>>,
    /// Of a call on gathered samples: those of other batches, each with its number.
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

    /// What the calls of a frame that have not ended wait for.
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
        let mut slices = slices.map(|(slice, samples)| (slice.batch().id(), spans(samples.into_iter())));
        let (batch, samples) = slices.next().unwrap_or_else(|| (frame.batch().id(), Vec::new()));
        let others = slices.collect();
        Self { function: frame.function_id(), batch, samples, others, phase, attempt, age_ns }
    }
}

/// Neighbours together.
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

//! Definition of a reward function for the engine.

use std::sync::Arc;
use std::time::Duration;

use serde::Deserialize;

use crate::limits::Limit;
use crate::outcome_cache::CachePolicy;

/// The index of a function among the dispatcher's.
pub type FunctionId = usize;

/// Samples of one call of a function.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Shape {
    /// One sample.
    Sample,
    /// One whole group, in order.
    Group,
    /// One whole batch, in order.
    Batch,
}

/// Value of a failed cell in the result.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum OnFailure {
    /// NaN, and the status that says why. `raise` is this to the engine; the package raises.
    Nan,
    /// NaN, as if the function had abstained.
    Abstain,
    /// This number, and the status that says why.
    Value(f32),
}

/// Rule by which a function's samples are gathered into calls (`scheduler::gather`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Gather {
    /// The most samples in one call, at least 1.
    pub max_size: usize,
    /// Longest time that an incomplete call waits for more samples.
    pub max_wait: Duration,
    /// True if samples of several batches may be in one call, where the payloads allow it too.
    pub across: bool,
}

/// The rules for one function's calls.
#[derive(Clone, Debug, PartialEq)]
pub struct Policy {
    /// Bounds one attempt, from the start of user code. Held by the lane.
    pub timeout: Duration,
    /// Time that a call has to stop before its worker is killed.
    pub grace: Duration,
    /// Bounds `setup()`.
    pub setup_timeout: Duration,
    /// Bounds a call, queueing and retries included. Held by the scheduler.
    pub total_timeout: Option<Duration>,
    /// Attempts after the first.
    pub retries: u16,
    /// Calls at a time; `None` leaves it to the lane.
    pub concurrency: Option<usize>,
    /// Limit that its calls must pass before they are handed out.
    pub limit: Option<Limit>,
    pub on_failure: OnFailure,
}

impl Policy {
    /// One attempt without grace, and no limit.
    #[must_use]
    pub const fn new(timeout: Duration) -> Self {
        Self {
            timeout,
            grace: Duration::ZERO,
            setup_timeout: timeout,
            total_timeout: None,
            retries: 0,
            concurrency: None,
            limit: None,
            on_failure: OnFailure::Nan,
        }
    }
}

/// Comparison of a source's number with the bound; its name is Python's operator.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
pub enum Comparison {
    #[serde(rename = "<")]
    Less,
    #[serde(rename = "<=")]
    AtMost,
    #[serde(rename = ">")]
    Greater,
    #[serde(rename = ">=")]
    AtLeast,
    #[serde(rename = "==")]
    Equal,
    #[serde(rename = "!=")]
    NotEqual,
}

/// Condition on another function's outcome for the same sample.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Condition {
    pub source: FunctionId,
    pub comparison: Comparison,
    pub bound: f32,
}

impl Condition {
    /// Returns whether the number that the source's cell shows allows the call; NaN, no number,
    /// never does.
    #[must_use]
    #[expect(clippy::float_cmp, reason = "`==` means equal, as in Python")]
    pub fn holds(self, shown: f32) -> bool {
        !shown.is_nan()
            && match self.comparison {
                Comparison::Less => shown < self.bound,
                Comparison::AtMost => shown <= self.bound,
                Comparison::Greater => shown > self.bound,
                Comparison::AtLeast => shown >= self.bound,
                Comparison::Equal => shown == self.bound,
                Comparison::NotEqual => shown != self.bound,
            }
    }
}

/// When a function is called at all.
#[derive(Clone, Debug, PartialEq)]
pub struct RunIf {
    /// Each about another function; all must hold.
    pub conditions: Box<[Condition]>,
    /// Value of a skipped cell; NaN for nothing.
    pub otherwise: f32,
}

/// Returns the number of functions with cells in results: those before the hidden ones.
#[must_use]
pub fn visible(functions: &[Function]) -> usize {
    functions.partition_point(|function| function.member_of.is_none())
}

/// One reward function.
#[derive(Clone, Debug)]
pub struct Function {
    pub name: Arc<str>,
    pub shape: Shape,
    /// Present for a function of samples that takes many in one call.
    pub gather: Option<Gather>,
    /// True if the scores of a group go through the function's `finish_group` once they are all
    /// there.
    pub finish: bool,
    /// When it is called at all, if that depends on other functions.
    pub run_if: Option<Arc<RunIf>>,
    /// True if identical calls, in flight at the same time, are made once: only for functions that
    /// take one sample and have no `finish`.
    pub pure: bool,
    /// Store of its outcomes: only of a pure function.
    pub cache: Option<CachePolicy>,
    /// The function that makes its calls, of a hidden one (`compose`): it has no cells in results.
    /// Hidden functions follow all others.
    pub member_of: Option<FunctionId>,
    /// The most member calls that one of its calls makes for a sample.
    pub member_calls: usize,
    /// Columns whose values are the second sample's, if it compares two.
    pub second_columns: Arc<[usize]>,
    /// True if another function is called where it fails: its calls don't wait for an open circuit
    /// breaker.
    pub has_fallback: bool,
    /// True if it has a worker for itself, so that module state behaves as in the trainer's
    /// process.
    pub pinned: bool,
    /// True if each call gets a fresh worker (`isolation="call"`).
    pub isolated: bool,
    /// Index of the engine's lane that runs it.
    pub lane: usize,
    pub policy: Policy,
}

impl Function {
    /// A function of the first lane, with nothing beside its policy.
    #[must_use]
    pub fn new(name: &str, shape: Shape, policy: Policy) -> Self {
        Self {
            name: name.into(),
            shape,
            gather: None,
            finish: false,
            run_if: None,
            pure: false,
            cache: None,
            member_of: None,
            member_calls: 0,
            second_columns: Arc::default(),
            has_fallback: false,
            pinned: false,
            isolated: false,
            lane: 0,
            policy,
        }
    }

    /// Returns the number of samples that one call covers in a batch of `samples` in groups of
    /// `group_size`.
    #[must_use]
    pub const fn span(&self, samples: usize, group_size: usize) -> usize {
        match self.shape {
            Shape::Sample => 1,
            Shape::Group => group_size,
            Shape::Batch => samples,
        }
    }
}

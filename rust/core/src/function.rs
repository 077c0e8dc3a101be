//! Definition of a reward function for the engine.

use std::sync::Arc;
use std::time::Duration;

use serde::Deserialize;

use crate::limits::Limit;
use crate::outcome_cache::CachePolicy;
use crate::settings::{optional_seconds, seconds};

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
#[derive(Clone, Copy, Debug, Default, PartialEq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum OnFailure {
    /// NaN, and the status that says why. `raise` is this to the engine; the package raises.
    #[default]
    #[serde(alias = "raise")]
    Nan,
    /// NaN, as if the function had abstained.
    Abstain,
    /// This number with the failure's status.
    Value(f32),
}

/// Rule by which a function's samples are gathered into calls (`scheduler::gather`).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Gather {
    /// The most samples in one call, at least 1.
    pub max_size: usize,
    /// Longest time that an incomplete call waits for more samples.
    #[serde(deserialize_with = "seconds")]
    pub max_wait: Duration,
    /// True if a call may have samples of several batches, where the payloads allow it too.
    pub across: bool,
}

/// The rules for one function's calls.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Policy {
    /// Bounds one attempt, from the start of user code. Held by the lane.
    #[serde(deserialize_with = "seconds")]
    pub timeout: Duration,
    /// Time that a call has to stop before its worker is killed.
    #[serde(deserialize_with = "seconds")]
    pub grace: Duration,
    /// Bounds `setup()`.
    #[serde(deserialize_with = "seconds")]
    pub setup_timeout: Duration,
    /// Bounds a call, queueing and retries included. Held by the scheduler.
    #[serde(default, deserialize_with = "optional_seconds")]
    pub total_timeout: Option<Duration>,
    /// Attempts after the first.
    #[serde(default)]
    pub retries: u16,
    /// Calls at a time; `None` leaves the number to the lane.
    pub concurrency: Option<usize>,
    /// Limit that its calls must pass before they are handed out.
    pub limit: Option<Limit>,
    #[serde(default)]
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
#[derive(Clone, Copy, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Condition {
    pub source: FunctionId,
    pub comparison: Comparison,
    pub bound: f32,
}

impl Condition {
    /// Returns whether the number that the source's cell shows allows the call; NaN (no number)
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
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RunIf {
    /// Each compares another function's outcome; all must hold.
    pub conditions: Box<[Condition]>,
    /// Value of a skipped cell; NaN for no value.
    pub otherwise: f32,
}

/// Returns the number of functions with cells in results: those before the hidden ones.
#[must_use]
pub fn visible(functions: &[Function]) -> usize {
    functions.partition_point(|function| function.member_of.is_none())
}

/// Part of a hidden function in the parsing of a judge's answers (`scheduler::parsing`).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Parsing {
    /// It is a judge, and this function reads its answers.
    By(FunctionId),
    /// It reads the answers of this judge.
    Of(FunctionId),
}

/// One reward function.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Function {
    pub name: Arc<str>,
    pub shape: Shape,
    /// Present for a function of samples that takes many in one call.
    pub gather: Option<Gather>,
    /// True if the scores of a complete group go through the function's `finish_group`.
    pub finish: bool,
    /// The gate, if calls depend on other functions.
    pub run_if: Option<Arc<RunIf>>,
    /// True if identical calls, in flight at the same time, are made once: only for functions that
    /// take one sample and have no `finish`.
    #[serde(default)]
    pub pure: bool,
    /// Store of its outcomes: only of a pure function.
    #[serde(skip)]
    pub cache: Option<CachePolicy>,
    /// The composite function that requests its calls, for a hidden function (`compose`). Hidden
    /// functions have no cells in results and follow all others.
    pub member_of: Option<FunctionId>,
    /// The composite functions that share its calls, if several do: a call in a slot is counted for
    /// the function at that place.
    #[serde(skip)]
    pub columns: Arc<[FunctionId]>,
    /// The most member calls that one of its calls makes; twice as many where a parser reads their
    /// answers.
    #[serde(skip)]
    pub member_calls: usize,
    #[serde(default)]
    pub parsing: Option<Parsing>,
    /// True if it reduces the scores in the slots before its own (`scheduler::reducing`).
    #[serde(default)]
    pub reduces: bool,
    /// Columns whose values are the second sample's, if it compares two.
    #[serde(default)]
    pub second_columns: Arc<[usize]>,
    /// True if another function is called where it fails: its calls don't wait for an open circuit
    /// breaker.
    #[serde(default)]
    pub has_fallback: bool,
    /// True if it has a dedicated worker, so that module state behaves as in the trainer's process.
    pub pinned: bool,
    /// True if each call gets a fresh worker (`isolation="call"`).
    pub isolated: bool,
    /// Index of the engine's lane that runs it.
    #[serde(skip)]
    pub lane: usize,
    pub policy: Policy,
}

impl Function {
    /// A function of the first lane, with a policy alone.
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
            columns: Arc::default(),
            member_calls: 0,
            parsing: None,
            reduces: false,
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

//! What the engine knows of one reward function.

use std::sync::Arc;
use std::time::Duration;

use crate::limits::Limit;
use crate::outcome_cache::CachePolicy;

/// The index of a function among the dispatcher's.
pub type FunctionId = usize;

/// What one call of a function covers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Shape {
    /// One sample.
    Sample,
    /// One whole group, in order.
    Group,
    /// One whole batch, in order.
    Batch,
}

/// What a failed cell holds in the result.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum OnFailure {
    /// NaN, and the status that says why. `raise` is this to the engine; the package raises.
    Nan,
    /// NaN, as if the function had abstained.
    Abstain,
    /// This number, and the status that says why.
    Value(f32),
}

/// How a function's samples are put together into calls (`scheduler::gather`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Gather {
    /// The most samples in one call, at least 1.
    pub max_size: usize,
    /// How long a call of fewer waits for more.
    pub max_wait: Duration,
    /// Whether samples of several batches may be in one call, where the payloads allow it too.
    pub across: bool,
}

/// The rules for one function's calls.
#[derive(Clone, Debug, PartialEq)]
pub struct Policy {
    /// Bounds one attempt, from the start of user code. Held by the lane.
    pub timeout: Duration,
    /// How long a call that was told to stop may take before its worker is killed.
    pub grace: Duration,
    /// Bounds `setup()`.
    pub setup_timeout: Duration,
    /// Bounds a call, queueing and retries included. Held by the scheduler.
    pub total_timeout: Option<Duration>,
    /// Attempts after the first.
    pub retries: u16,
    /// Calls at a time; `None` leaves it to the lane.
    pub concurrency: Option<usize>,
    /// What its calls must ask before they are handed out.
    pub limit: Option<Limit>,
    pub on_failure: OnFailure,
}

/// How a source's number is compared with the bound.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Comparison {
    Less,
    AtMost,
    Greater,
    AtLeast,
    Equal,
    NotEqual,
}

impl Comparison {
    /// The comparison that this operator of Python stands for.
    #[must_use]
    pub fn of(operator: &str) -> Option<Self> {
        Some(match operator {
            "<" => Self::Less,
            "<=" => Self::AtMost,
            ">" => Self::Greater,
            ">=" => Self::AtLeast,
            "==" => Self::Equal,
            "!=" => Self::NotEqual,
            _ => return None,
        })
    }
}

/// What one other function must have given for the same sample.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Condition {
    pub source: FunctionId,
    pub comparison: Comparison,
    pub bound: f32,
}

impl Condition {
    /// Whether the number that the source's cell shows allows the call; NaN, no number, never does.
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
    /// What a skipped cell shows; NaN for nothing.
    pub otherwise: f32,
}

/// One reward function.
#[derive(Clone, Debug)]
pub struct Function {
    pub name: Arc<str>,
    pub shape: Shape,
    /// Of a function of samples that takes many in one call.
    pub gather: Option<Gather>,
    /// Whether the scores of a group go through the function's `finish_group` once they are all
    /// there.
    pub finish: bool,
    /// When it is called at all, if that depends on other functions.
    pub run_if: Option<Arc<RunIf>>,
    /// Whether identical calls, in flight at the same time, are made once: only for functions that
    /// take one sample and have no `finish`.
    pub pure: bool,
    /// Where its outcomes are kept for later: only of a pure function.
    pub cache: Option<CachePolicy>,
    /// Whether it has one worker of its own, so that module state behaves as in the trainer's
    /// process.
    pub pinned: bool,
    /// Whether each call gets a fresh worker (`isolation="call"`).
    pub isolated: bool,
    /// Which of the engine's lanes runs it.
    pub lane: usize,
    pub policy: Policy,
}

impl Function {
    /// How many samples one call covers in a batch of `samples` in groups of `group_size`.
    #[must_use]
    pub const fn span(&self, samples: usize, group_size: usize) -> usize {
        match self.shape {
            Shape::Sample => 1,
            Shape::Group => group_size,
            Shape::Batch => samples,
        }
    }
}

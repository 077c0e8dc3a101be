//! Report of a call beside its cells: its usage, and named values of its samples.
//!
//! - Usage is counted as it is reported, whatever becomes of the call: failed attempts, hedges that
//!   lost and answers without a score cost as much as others.
//! - Extra values belong to the samples of an attempt that counts; a later attempt's replace them.
//! - The core adds up and passes on; it does not interpret the values.

use std::borrow::Cow;
use std::ops::AddAssign;

use serde::Serialize;

/// Usage of requests.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct Usage {
    pub requests: u64,
    /// Number of requests with unknown usage, because no answer or no usage came.
    pub unknown: u64,
    /// All tokens of prompts, the cached ones too.
    pub prompt_tokens: u64,
    pub cached_tokens: u64,
    /// All tokens of answers, those of reasoning too.
    pub completion_tokens: u64,
    pub reasoning_tokens: u64,
    /// Cost by the function's price; 0 without one.
    pub cost: f64,
}

impl Usage {
    /// Returns the part from `start` to `end` of `all` equal parts. Consecutive parts add up to the
    /// whole.
    #[must_use]
    pub(crate) fn between(self, start: u64, end: u64, all: u64) -> Self {
        let part = |count: u64| {
            let until =
                |end: u64| u64::try_from(u128::from(count) * u128::from(end) / u128::from(all)).unwrap_or(count);
            until(end) - until(start)
        };
        #[expect(clippy::cast_precision_loss, reason = "a few thousand samples at most")]
        let cost = self.cost * ((end - start) as f64 / all as f64);
        Self {
            requests: part(self.requests),
            unknown: part(self.unknown),
            prompt_tokens: part(self.prompt_tokens),
            cached_tokens: part(self.cached_tokens),
            completion_tokens: part(self.completion_tokens),
            reasoning_tokens: part(self.reasoning_tokens),
            cost,
        }
    }
}

impl AddAssign for Usage {
    fn add_assign(&mut self, other: Self) {
        for (mine, more) in [
            (&mut self.requests, other.requests),
            (&mut self.unknown, other.unknown),
            (&mut self.prompt_tokens, other.prompt_tokens),
            (&mut self.cached_tokens, other.cached_tokens),
            (&mut self.completion_tokens, other.completion_tokens),
            (&mut self.reasoning_tokens, other.reasoning_tokens),
        ] {
            *mine = mine.saturating_add(more); // servers may report anything
        }
        self.cost += other.cost;
    }
}

/// A value of one sample.
#[derive(Clone, Debug, PartialEq)]
pub enum Extra {
    None,
    Number(f64),
    Text(String),
    List(Vec<Self>),
}

impl From<f64> for Extra {
    fn from(number: f64) -> Self {
        Self::Number(number)
    }
}

impl From<String> for Extra {
    fn from(text: String) -> Self {
        Self::Text(text)
    }
}

impl From<&str> for Extra {
    fn from(text: &str) -> Self {
        Self::Text(text.to_owned())
    }
}

impl<T: Into<Self>> From<Option<T>> for Extra {
    fn from(value: Option<T>) -> Self {
        value.map_or(Self::None, Into::into)
    }
}

impl<T: Into<Self>> From<Vec<T>> for Extra {
    fn from(values: Vec<T>) -> Self {
        Self::List(values.into_iter().map(Into::into).collect())
    }
}

/// A name and its value.
pub type NamedExtra = (Cow<'static, str>, Extra);

/// Report of an attempt.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Report {
    pub usage: Usage,
    /// The values, each with the index of its sample in the call.
    pub extra: Vec<(usize, NamedExtra)>,
    /// True if a part of the call has failed although the call has an outcome, which is then not
    /// kept for later calls.
    pub incomplete: bool,
}

impl Report {
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.extra.is_empty() && self.usage == Usage::default() && !self.incomplete
    }

    /// Adds a value of a sample, by its index in the call; the last value of a name counts.
    pub fn add(&mut self, sample: usize, name: impl Into<Cow<'static, str>>, value: impl Into<Extra>) {
        self.extra.push((sample, (name.into(), value.into())));
    }

    /// Adds the report of another attempt or part of the call.
    pub fn merge(&mut self, other: Self) {
        self.usage += other.usage;
        self.extra.extend(other.extra);
        self.incomplete |= other.incomplete;
    }
}

//! A function whose calls are several requests: its members, its rules, and the score made of the
//! answers.

use guerdon_core::function::{FunctionId, Policy};
use serde::Deserialize;

use crate::compound::case_rules::CaseRules;
use crate::compound::schedule::Schedule;
use crate::fleet::RequestKey;
use crate::function::HttpFunction;

/// See the module.
#[derive(Clone, Debug)]
pub struct CompoundFunction {
    pub kind: Compound,
    /// Members, at least one.
    pub members: Vec<CompoundMember>,
    /// The rules for all requests, which go to one fleet: timeout, retries, limit.
    pub rules: Policy,
}

/// A function whose cells compound calls fill.
#[derive(Clone, Debug)]
pub enum CompoundSpec {
    /// It asks, and has the first column of the answers.
    Leads(Box<CompoundFunction>),
    /// Another asks; this is one of the columns of its answers.
    Follows { leader: FunctionId, column: usize },
}

/// Requests of one kind.
#[derive(Clone, Debug)]
pub struct CompoundMember {
    pub request: HttpFunction,
    /// Columns of a comparison's second sample.
    pub second: Vec<usize>,
}

/// Kind of a call.
#[derive(Clone, Debug)]
pub enum Compound {
    /// Each member once, one after the other; each has a separate column.
    Criteria,
    /// One request, whose answer has a score for each of this many columns.
    Rubric(usize),
    /// Pairs of a group.
    Pairwise(Pairwise),
    /// A program, run once a case.
    Cases(CaseRules),
}

/// Rule for comparing the samples of a group.
#[derive(Clone, Copy, Debug)]
pub struct Pairwise {
    pub schedule: Schedule,
    pub score: PairwiseScore,
    /// Each pair is asked in both orders.
    pub both_orders: bool,
}

/// Scores computed from comparisons.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum PairwiseScore {
    BradleyTerry,
    WinRate,
}

impl Compound {
    /// Returns the number of scores in the answer to one request.
    #[must_use]
    pub const fn scores(&self) -> usize {
        if let Self::Rubric(criteria) = self { *criteria } else { 1 }
    }

    /// The key of its requests: those with the same text go to one endpoint, as a group's do.
    #[must_use]
    pub fn request_key(&self, key: RequestKey) -> RequestKey {
        let alike = matches!(self, Self::Criteria);
        let group_size = match self {
            // Programs have no prefix in common: each goes where there is room.
            Self::Cases(_) => 1,
            _ if alike => key.group_size.max(2),
            _ => key.group_size,
        };
        RequestKey { group_size, ..key }
    }

    /// Returns the number of result columns that a call fills.
    #[must_use]
    pub const fn columns(&self, members: usize) -> usize {
        match self {
            Self::Criteria => members,
            Self::Rubric(criteria) => *criteria,
            Self::Pairwise(_) | Self::Cases(_) => 1,
        }
    }
}

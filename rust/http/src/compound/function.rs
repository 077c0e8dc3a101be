//! A function whose calls are several requests: who is asked, by which rules, and what is made of
//! the answers.

use guerdon_core::function::{FunctionId, Policy};

use crate::compound::case_rules::CaseRules;
use crate::compound::reduce::Reduction;
use crate::compound::schedule::Schedule;
use crate::fleet::RequestKey;
use crate::function::HttpFunction;

/// See the module.
#[derive(Clone, Debug)]
pub struct CompoundFunction {
    pub kind: Compound,
    /// At least one.
    pub members: Vec<CompoundMember>,
    /// The rules for requests: timeout, retries, limit. Members that share an endpoint share them.
    pub rules: Vec<Policy>,
}

/// A function whose cells compound calls fill.
#[derive(Clone, Debug)]
pub enum CompoundSpec {
    /// It asks, and has the first column of the answers.
    Leads(CompoundFunction),
    /// Another asks; this is one of the columns of its answers.
    Follows { leader: FunctionId, column: usize },
}

/// What is asked by one kind of request.
#[derive(Clone, Debug)]
pub struct CompoundMember {
    /// As `result.extra` calls it.
    pub name: String,
    pub request: HttpFunction,
    /// Which of the rules its requests obey.
    pub rules: usize,
    /// Of a comparison: the columns that are those of the second sample.
    pub second: Vec<usize>,
}

/// What a call is.
#[derive(Clone, Debug)]
pub enum Compound {
    /// The same question so many times.
    Votes(usize, Reduction),
    /// Each member once.
    Panel(Reduction),
    /// Each member once, one after the other; each has a column of its own.
    Criteria,
    /// One request, whose answer has a score for each of so many columns.
    Rubric(usize),
    /// Pairs of a group.
    Pairwise(Pairwise),
    /// A program, run once a case.
    Cases(CaseRules),
}

/// How the samples of a group are compared.
#[derive(Clone, Copy, Debug)]
pub struct Pairwise {
    pub schedule: Schedule,
    pub score: PairwiseScore,
    /// Each pair is asked in both orders.
    pub both_orders: bool,
}

/// What comparisons are made into.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PairwiseScore {
    BradleyTerry,
    WinRate,
}

impl Compound {
    /// How many scores the answer to one request has.
    #[must_use]
    pub const fn scores(&self) -> usize {
        if let Self::Rubric(criteria) = self { *criteria } else { 1 }
    }

    /// The key of its requests: those with the same text go to one endpoint, as a group's do.
    #[must_use]
    pub fn request_key(&self, key: RequestKey) -> RequestKey {
        let alike = matches!(self, Self::Votes(..) | Self::Criteria);
        let group_size = match self {
            // Programs have no prefix in common: each goes where there is room.
            Self::Cases(_) => 1,
            _ if alike => key.group_size.max(2),
            _ => key.group_size,
        };
        RequestKey { group_size, ..key }
    }

    /// How many columns of a result a call fills.
    #[must_use]
    pub const fn columns(&self, members: usize) -> usize {
        match self {
            Self::Criteria => members,
            Self::Rubric(criteria) => *criteria,
            Self::Votes(..) | Self::Panel(_) | Self::Pairwise(_) | Self::Cases(_) => 1,
        }
    }
}

//! A function whose calls are several requests: its members, its rules, and the score made of the
//! answers.

use guerdon_core::function::{FunctionId, Policy};

use crate::fleet::RequestKey;
use crate::function::HttpFunction;

/// See the module.
#[derive(Clone, Debug)]
pub struct CompoundFunction {
    pub kind: Compound,
    /// Members, at least one.
    pub members: Vec<HttpFunction>,
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

/// Kind of a call.
#[derive(Clone, Debug)]
pub enum Compound {
    /// Each member once, one after the other; each has a separate column.
    Criteria,
    /// One request, whose answer has a score for each of this many columns.
    Rubric(usize),
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
        }
    }
}

//! A function whose calls are several requests: its members, its rules, and the score made of the
//! answers.

use guerdon_core::function::Policy;

use crate::compound::case_rules::CaseRules;
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

/// Kind of a call.
#[derive(Clone, Debug)]
pub enum Compound {
    /// A program, run once a case.
    Cases(CaseRules),
}

//! `CompoundSettings`: a function whose calls are several requests, as Python says it.

use std::sync::Arc;

use guerdon_core::function::Policy;
use guerdon_core::spending::Spending;
use guerdon_http::{Callback, Compound, CompoundFunction, CompoundSpec, HttpSettings};
use serde::Deserialize;

/// Kind of the calls, with its settings.
#[derive(Deserialize)]
#[serde(rename_all = "lowercase", deny_unknown_fields)]
pub enum KindArg {
    Criteria {},
    Rubric { columns: usize },
}

/// A function that makes compound calls; or the position of the function whose calls fill its
/// cells, and its column of the answers.
#[derive(Deserialize)]
#[serde(rename_all = "lowercase", deny_unknown_fields)]
pub enum CompoundSettings {
    Leads { kind: KindArg, members: Vec<HttpSettings>, rules: Box<Policy> },
    Follows(usize, usize),
}

impl CompoundSettings {
    /// Makes the function. `caps` adds the dispatcher's cap to the function's own, which all
    /// members share.
    pub fn spec(
        &self,
        caps: &dyn Fn(Option<Arc<Spending>>) -> Vec<Arc<Spending>>,
        callbacks: &[Callback],
    ) -> Result<CompoundSpec, String> {
        let (kind, members, rules) = match self {
            Self::Follows(leader, column) => return Ok(CompoundSpec::Follows { leader: *leader, column: *column }),
            Self::Leads { kind, members, rules } => (kind, members, Policy::clone(rules)),
        };
        let kind = match kind {
            KindArg::Criteria {} => Compound::Criteria,
            KindArg::Rubric { columns } => Compound::Rubric(*columns),
        };
        let first = members.first().ok_or_else(|| "a function without members".to_owned())?;
        let caps = caps(first.own_cap());
        let members = members.iter().map(|http| http.function(&caps, callbacks)).collect::<Result<_, String>>()?;
        Ok(CompoundSpec::Leads(Box::new(CompoundFunction { kind, members, rules })))
    }
}

//! `CompositeArg`: the members of a function and the rule for their scores, as Python gives them.

use guerdon_core::compose::{Composite, Members, Reduce, Reduction};
use guerdon_core::function::FunctionId;
use pyo3::prelude::*;

use crate::words::Word;

/// The dict of `Composition.native`, whose values the package has checked.
#[derive(FromPyObject)]
#[pyo3(from_item_all)]
pub struct CompositeArg {
    kind: String,
    /// Names in `result.extra`, and positions.
    members: Vec<(String, FunctionId)>,
    /// The most calls of the only member; `None`: each member is called once.
    votes: Option<usize>,
    reduce: Word<Reduce>,
    weights: Vec<f64>,
    needed: usize,
    min_agreement: Option<f64>,
    /// True if a parser of the user's reads the answers of a member.
    pub parsed: bool,
}

impl CompositeArg {
    pub fn composite(self) -> Composite {
        let Self { kind, members, votes, reduce, weights, needed, min_agreement, .. } = self;
        let members = match (votes, &members[..]) {
            (Some(votes), [(_, function), ..]) => Members::Votes { function: *function, votes },
            _ if kind == "fallback" => Members::Fallback(members),
            _ => Members::Panel(members),
        };
        Composite { members, rules: Reduction { reduce: reduce.0, weights, needed, min_agreement } }
    }
}

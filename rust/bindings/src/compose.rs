//! `CompositeArg`: the members of a function and the rule for their scores, as Python gives them.

use guerdon_core::compose::{Composite, Members, Reduce, Reduction};
use guerdon_core::function::FunctionId;
use serde::{Deserialize, Deserializer};

/// The dict of `Composition.native`, whose values the package has checked.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct CompositeArg {
    kind: String,
    /// Names in `result.extra`, and positions.
    members: Vec<(String, FunctionId)>,
    /// The most calls of the only member; `None`: each member is called once.
    votes: Option<usize>,
    reduce: Reduce,
    weights: Vec<f64>,
    needed: usize,
    min_agreement: Option<f64>,
}

impl CompositeArg {
    fn composite(self) -> Composite {
        let Self { kind, members, votes, reduce, weights, needed, min_agreement } = self;
        let members = match (votes, &members[..]) {
            (Some(votes), [(_, function), ..]) => Members::Votes { function: *function, votes },
            _ if kind == "fallback" => Members::Fallback(members),
            _ => Members::Panel(members),
        };
        Composite { members, rules: Reduction { reduce, weights, needed, min_agreement } }
    }
}

pub fn composite<'de, D: Deserializer<'de>>(given: D) -> Result<Option<Composite>, D::Error> {
    Ok(Option::deserialize(given)?.map(CompositeArg::composite))
}

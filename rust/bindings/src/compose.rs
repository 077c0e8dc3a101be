//! `CompositeArg`: the members of a function and the rule for their scores, as Python gives them.

use guerdon_core::compose::{Composite, Members, Opinions, Pairwise, PairwiseScore, Reduce, Reduction, Schedule};
use guerdon_core::function::FunctionId;
use pyo3::prelude::*;

use crate::words::Word;

/// The dict of `Composition.native`, whose values the package has checked.
#[derive(FromPyObject)]
pub enum CompositeArg {
    Opinions(OpinionsArg),
    Pairwise(PairwiseArg),
}

#[derive(FromPyObject)]
#[pyo3(from_item_all)]
pub struct OpinionsArg {
    kind: String,
    /// Names in `result.extra`, and positions.
    members: Vec<(String, FunctionId)>,
    /// The most calls of the only member; `None`: each member is called once.
    votes: Option<usize>,
    reduce: Word<Reduce>,
    weights: Vec<f64>,
    needed: usize,
    min_agreement: Option<f64>,
}

#[derive(FromPyObject)]
#[pyo3(from_item_all)]
pub struct PairwiseArg {
    /// Position of the function that compares two samples.
    function: FunctionId,
    schedule: String,
    rounds: Option<usize>,
    score: Word<PairwiseScore>,
    both_orders: bool,
}

impl CompositeArg {
    pub fn composite(self) -> Composite {
        match self {
            Self::Opinions(opinions) => Composite::Opinions(opinions.opinions()),
            Self::Pairwise(PairwiseArg { function, schedule, rounds, score, both_orders }) => {
                let schedule = match &*schedule {
                    "all" => Schedule::AllPairs,
                    "swiss" => Schedule::Swiss(rounds),
                    _ => Schedule::Circular,
                };
                Composite::Pairwise(Pairwise { function, schedule, score: score.0, both_orders })
            }
        }
    }
}

impl OpinionsArg {
    fn opinions(self) -> Opinions {
        let Self { kind, members, votes, reduce, weights, needed, min_agreement } = self;
        let members = match (votes, &members[..]) {
            (Some(votes), [(_, function), ..]) => Members::Votes { function: *function, votes },
            _ if kind == "fallback" => Members::Fallback(members),
            _ => Members::Panel(members),
        };
        Opinions { members, rules: Reduction { reduce: reduce.0, weights, needed, min_agreement } }
    }
}

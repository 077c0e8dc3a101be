//! `CompositeArg`: the members of a function and the rule for their scores, as Python gives them.

use std::sync::Arc;

use guerdon_core::compose::{
    Composite, Criterion, Member, Members, Opinions, Pairwise, PairwiseScore, Reduce, Reduction, Schedule,
};
use guerdon_core::function::{Condition, FunctionId};
use serde::{Deserialize, Deserializer};

/// The dict of `Composition.native`, whose values the package has checked.
#[derive(Deserialize)]
#[serde(rename_all = "lowercase")]
enum CompositeArg {
    Opinions(OpinionsArg),
    Pairwise(PairwiseArg),
    Criterion(CriterionArg),
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct OpinionsArg {
    kind: String,
    /// The names in `result.extra`, each with its member.
    members: Vec<(String, MemberArg)>,
    /// The most calls of the only member, a function; `None`: each member is called once.
    votes: Option<usize>,
    reduce: Reduce,
    weights: Vec<f64>,
    needed: usize,
    min_agreement: Option<f64>,
    /// Conditions on the scores of a cascade's members.
    accept: Vec<Condition>,
}

#[derive(Deserialize)]
#[serde(rename_all = "lowercase")]
enum MemberArg {
    /// Its position.
    Function(FunctionId),
    Opinions(OpinionsArg),
}

/// Rule for the pairs of a comparison; `rounds` are those of "swiss".
#[derive(Deserialize)]
#[serde(rename_all = "lowercase")]
enum ScheduleArg {
    Circular,
    All,
    Swiss,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct PairwiseArg {
    /// Position of the function that compares two samples.
    function: FunctionId,
    schedule: ScheduleArg,
    rounds: Option<usize>,
    score: PairwiseScore,
    both_orders: bool,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct CriterionArg {
    /// Position of the function that sends the requests.
    function: FunctionId,
    /// Positions of all columns of the rubric.
    columns: Arc<[FunctionId]>,
    place: usize,
    in_turn: bool,
}

impl CompositeArg {
    fn composite(self) -> Composite {
        match self {
            Self::Opinions(opinions) => Composite::Opinions(opinions.opinions()),
            Self::Pairwise(PairwiseArg { function, schedule, rounds, score, both_orders }) => {
                let schedule = match schedule {
                    ScheduleArg::Circular => Schedule::Circular,
                    ScheduleArg::All => Schedule::AllPairs,
                    ScheduleArg::Swiss => Schedule::Swiss(rounds),
                };
                Composite::Pairwise(Pairwise { function, schedule, score, both_orders })
            }
            Self::Criterion(CriterionArg { function, columns, place, in_turn }) => {
                Composite::Criterion(Criterion { function, columns, place, in_turn })
            }
        }
    }
}

impl OpinionsArg {
    fn opinions(self) -> Opinions {
        let Self { kind, members, votes, reduce, weights, needed, min_agreement, accept } = self;
        let member = |(name, member)| match member {
            MemberArg::Function(function) => (name, Member::Function(function)),
            MemberArg::Opinions(opinions) => (name, Member::Opinions(Box::new(opinions.opinions()))),
        };
        let members: Vec<_> = members.into_iter().map(member).collect();
        let members = match (votes, &members[..], &*kind) {
            (Some(votes), [(_, Member::Function(function))], _) => Members::Votes { function: *function, votes },
            (.., "fallback" | "cascade") => Members::Cascade { members, accept, is_fallback: kind == "fallback" },
            _ => Members::Panel(members),
        };
        Opinions { members, rules: Reduction { reduce, weights, needed, min_agreement } }
    }
}

pub fn composite<'de, D: Deserializer<'de>>(given: D) -> Result<Option<Composite>, D::Error> {
    Ok(Option::deserialize(given)?.map(CompositeArg::composite))
}

//! Several opinions of one sample, of votes or of members of a panel, made into one score.
//!
//! - Fewer scores than `needed` make no score: the sample abstains if too many abstained for the
//!   number needed, else it has failed.
//! - Opinions that failed or abstained count for nothing else.
//! - A tie between the most common scores abstains: it is nobody's majority.

use serde::Deserialize;

use crate::function::FunctionId;

/// Rule that makes one score of several.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Reduce {
    /// The middle one, or the mean of the two in the middle.
    Median,
    Mean,
    /// The most common one.
    Majority,
    Min,
    Max,
    /// The result of a user's function, which is called with all of them.
    Function(FunctionId),
}

/// Result of one request.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Opinion {
    Score(f64),
    Abstained,
    Failed,
}

/// Result of all of them.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum ReducedScore {
    Score(f64),
    Abstained,
    /// Too few of them gave a score.
    Failed,
}

/// The rules of one function.
#[derive(Clone, Debug, PartialEq)]
pub struct Reduction {
    pub reduce: Reduce,
    /// One for each opinion; empty: all count the same.
    pub weights: Vec<f64>,
    /// Number of scores needed, at least 1.
    pub needed: usize,
    /// The least share of the scores that the most common one has, or the sample abstains.
    pub min_agreement: Option<f64>,
}

/// Two shares of votes differ by more than this, or are the same.
const EPSILON: f64 = 1e-9;

impl Reduction {
    /// The result of all opinions, in the order of their weights.
    #[must_use]
    pub fn reduced(&self, opinions: &[Opinion]) -> ReducedScore {
        let weight = |place: usize| self.weights.get(place).copied().unwrap_or(1.0);
        let score = |(place, opinion): (usize, &Opinion)| match opinion {
            Opinion::Score(score) => Some((*score, weight(place))),
            Opinion::Abstained | Opinion::Failed => None,
        };
        if let Some(too_few) = self.too_few(opinions) {
            return too_few;
        }
        let mut scores: Vec<(f64, f64)> = opinions.iter().enumerate().filter_map(score).collect();
        scores.sort_by(|one, other| one.0.total_cmp(&other.0));
        if self.min_agreement.is_some_and(|floor| agreement(&scores) < floor - EPSILON) {
            return ReducedScore::Abstained;
        }
        match self.reduce {
            Reduce::Min => ReducedScore::Score(scores[0].0),
            Reduce::Max => ReducedScore::Score(scores[scores.len() - 1].0),
            Reduce::Mean => mean(&scores).map_or(ReducedScore::Abstained, ReducedScore::Score),
            Reduce::Median => ReducedScore::Score(median(&scores)),
            Reduce::Majority => majority(&scores).map_or(ReducedScore::Abstained, ReducedScore::Score),
            Reduce::Function(_) => ReducedScore::Failed, // only its own call has a score
        }
    }

    /// Returns the result where fewer scores than needed are there.
    pub(super) fn too_few(&self, opinions: &[Opinion]) -> Option<ReducedScore> {
        let count = |wanted: fn(&Opinion) -> bool| opinions.iter().filter(|one| wanted(one)).count();
        let needed = self.needed.max(1);
        if count(|one| matches!(one, Opinion::Score(_))) >= needed {
            return None;
        }
        let out_of_reach = count(|one| *one == Opinion::Abstained) + needed > opinions.len();
        Some(if out_of_reach { ReducedScore::Abstained } else { ReducedScore::Failed })
    }
}

/// The share of the scores that the most common one has; 0 without any.
#[must_use]
pub fn agreement_of(opinions: &[Opinion]) -> f64 {
    let score = |opinion: &Opinion| match opinion {
        Opinion::Score(score) => Some((*score, 1.0)),
        Opinion::Abstained | Opinion::Failed => None,
    };
    let mut scores: Vec<(f64, f64)> = opinions.iter().filter_map(score).collect();
    scores.sort_by(|one, other| one.0.total_cmp(&other.0));
    agreement(&scores)
}

/// Returns the agreement of scores in order.
fn agreement(scores: &[(f64, f64)]) -> f64 {
    let (most, all) =
        common(scores).fold((0.0, 0.0), |(most, all): (f64, f64), (_, weight)| (most.max(weight), all + weight));
    if all > 0.0 { most / all } else { 0.0 }
}

/// Equal scores together, each with its weight.
fn common(scores: &[(f64, f64)]) -> impl Iterator<Item = (f64, f64)> + '_ {
    scores.chunk_by(|one, other| one.0 == other.0).map(|same| (same[0].0, same.iter().map(|one| one.1).sum()))
}

fn mean(scores: &[(f64, f64)]) -> Option<f64> {
    let all: f64 = scores.iter().map(|one| one.1).sum();
    (all > 0.0).then(|| scores.iter().map(|(score, weight)| score * (weight / all)).sum())
}

fn median(scores: &[(f64, f64)]) -> f64 {
    let half = scores.iter().map(|one| one.1).sum::<f64>() / 2.0;
    let mut below = 0.0;
    for (place, (score, weight)) in scores.iter().enumerate() {
        below += weight;
        if (below - half).abs() <= EPSILON * half && place + 1 < scores.len() {
            return f64::midpoint(*score, scores[place + 1].0);
        }
        if below >= half {
            return *score;
        }
    }
    scores[scores.len() - 1].0
}

fn majority(scores: &[(f64, f64)]) -> Option<f64> {
    let (mut best, mut tied) = ((f64::NAN, 0.0), true);
    for (score, weight) in common(scores) {
        if weight > best.1 + EPSILON {
            (best, tied) = ((score, weight), false);
        } else if weight >= best.1 - EPSILON {
            tied = true;
        }
    }
    (!tied).then_some(best.0)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn rules(reduce: Reduce, weights: &[f64]) -> Reduction {
        Reduction { reduce, weights: weights.to_vec(), needed: 1, min_agreement: None }
    }

    fn of(rules: &Reduction, scores: &[f64]) -> ReducedScore {
        rules.reduced(&scores.iter().copied().map(Opinion::Score).collect::<Vec<_>>())
    }

    #[test]
    fn several_scores_give_one_reading() {
        use ReducedScore::{Abstained, Score};
        for (reduce, scores, expected) in [
            (Reduce::Median, &[3.0, 1.0, 2.0][..], Score(2.0)),
            (Reduce::Median, &[4.0, 1.0, 2.0, 3.0], Score(2.5)),
            (Reduce::Mean, &[1.0, 2.0, 6.0], Score(3.0)),
            (Reduce::Majority, &[1.0, 2.0, 2.0], Score(2.0)),
            (Reduce::Majority, &[1.0, 2.0], Abstained),
            (Reduce::Majority, &[1.0, 1.0, 2.0, 2.0, 3.0], Abstained),
            (Reduce::Min, &[2.0, 1.0], Score(1.0)),
            (Reduce::Max, &[2.0, 1.0], Score(2.0)),
        ] {
            assert_eq!(of(&rules(reduce, &[]), scores), expected, "{reduce:?} of {scores:?}");
        }
    }

    #[test]
    fn weights_count() {
        assert_eq!(of(&rules(Reduce::Mean, &[3.0, 1.0]), &[1.0, 5.0]), ReducedScore::Score(2.0));
        assert_eq!(of(&rules(Reduce::Median, &[1.0, 1.0, 3.0]), &[1.0, 2.0, 9.0]), ReducedScore::Score(9.0));
        assert_eq!(of(&rules(Reduce::Median, &[1.0, 1.0]), &[1.0, 2.0]), ReducedScore::Score(1.5));
        assert_eq!(of(&rules(Reduce::Majority, &[2.0, 1.0]), &[1.0, 2.0]), ReducedScore::Score(1.0));
    }

    #[test]
    fn too_few_scores_are_no_score() {
        let rules = Reduction { needed: 2, ..rules(Reduce::Mean, &[]) };
        use Opinion::{Abstained, Failed, Score};
        assert_eq!(rules.reduced(&[Score(1.0), Score(3.0), Failed]), ReducedScore::Score(2.0));
        assert_eq!(rules.reduced(&[Score(1.0), Failed, Failed]), ReducedScore::Failed);
        assert_eq!(rules.reduced(&[Score(1.0), Abstained, Failed]), ReducedScore::Failed);
        assert_eq!(rules.reduced(&[Score(1.0), Abstained, Abstained]), ReducedScore::Abstained);
        assert_eq!(rules.reduced(&[Failed, Abstained, Abstained]), ReducedScore::Abstained);
    }

    #[test]
    fn below_the_floor_of_agreement_a_sample_abstains() {
        let rules = Reduction { min_agreement: Some(0.6), ..rules(Reduce::Mean, &[]) };
        assert_eq!(of(&rules, &[1.0, 1.0, 1.0, 2.0, 3.0]), ReducedScore::Score(1.6));
        assert_eq!(of(&rules, &[1.0, 1.0, 2.0, 2.0, 3.0]), ReducedScore::Abstained);
    }

    proptest! {
        /// The order of opinions has no influence, and a score is between the least and the most.
        #[test]
        fn the_result_is_of_all_alike(mut scores in prop::collection::vec(-5..5, 1..9), at in 0usize..9) {
            for reduce in [Reduce::Median, Reduce::Mean, Reduce::Majority, Reduce::Min, Reduce::Max] {
                let numbers: Vec<f64> = scores.iter().map(|score| f64::from(*score)).collect();
                let reduced = of(&rules(reduce, &[]), &numbers);
                if let ReducedScore::Score(score) = reduced {
                    let (least, most) = (numbers.iter().copied().fold(f64::MAX, f64::min), numbers.iter().copied().fold(f64::MIN, f64::max));
                    prop_assert!(score >= least - EPSILON && score <= most + EPSILON);
                }
                let count = scores.len();
                scores.rotate_left(at % count);
                let turned: Vec<f64> = scores.iter().map(|score| f64::from(*score)).collect();
                match (reduced, of(&rules(reduce, &[]), &turned)) {
                    (ReducedScore::Score(one), ReducedScore::Score(other)) => prop_assert!((one - other).abs() < EPSILON),
                    (one, other) => prop_assert_eq!(one, other),
                }
            }
        }
    }
}

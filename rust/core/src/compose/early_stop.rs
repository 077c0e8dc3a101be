//! When votes that are still to come can't change the result.
//!
//! - compose-3  Votes stop only where every way in which the rest may end, failures and
//!   abstentions among them, gives the same result.
//! - Votes all count the same, without weights.

use crate::compose::reduce::{Opinion, Reduce, ReducedScore, Reduction, agreement_of};

/// Returns whether the result is the same however `remaining` more votes end.
#[must_use]
pub fn is_decided(rules: &Reduction, votes: &[Opinion], remaining: usize) -> bool {
    if remaining == 0 {
        return true;
    }
    let needed = rules.needed.max(1);
    let (scores, abstained) =
        (count(votes, |one| matches!(one, Opinion::Score(_))), count(votes, |one| **one == Opinion::Abstained));
    let most_abstained = (votes.len() + remaining).saturating_sub(needed);
    if abstained > most_abstained {
        return true;
    }
    if scores + remaining < needed {
        return abstained + remaining <= most_abstained;
    }
    scores >= needed && is_final(rules, votes, remaining)
}

/// Returns the smallest number of further votes that could decide it: those that are worth sending
/// together.
#[must_use]
pub fn worth_sending(rules: &Reduction, votes: &[Opinion], remaining: usize) -> usize {
    let mut likely = votes.to_vec();
    let next = Opinion::Score(most_common(votes).map_or(0.0, |(score, _)| score));
    for more in 1..=remaining {
        likely.push(next);
        if is_decided(rules, &likely, remaining - more) {
            return more;
        }
    }
    remaining
}

fn count(votes: &[Opinion], wanted: impl Fn(&&Opinion) -> bool) -> usize {
    votes.iter().filter(wanted).count()
}

/// Returns whether there are scores enough, and more of them change nothing.
fn is_final(rules: &Reduction, votes: &[Opinion], remaining: usize) -> bool {
    let Some((leader, most)) = most_common(votes) else { return false };
    let scores = count(votes, |one| matches!(one, Opinion::Score(_)));
    if let Some(floor) = rules.min_agreement {
        // All the rest may agree with the leader, or each with nobody.
        if share(most + remaining, scores + remaining) < floor - 1e-9 {
            return true;
        }
        let least = Opinion::Score(f64::NAN);
        let spread: Vec<Opinion> = votes.iter().copied().chain(std::iter::repeat_n(least, remaining)).collect();
        if agreement_of(&spread) < floor - 1e-9 {
            return false;
        }
    }
    match rules.reduce {
        Reduce::Majority => {
            let second = votes.iter().filter_map(score_of).filter(|score| *score != leader);
            let second = second.map(|score| count(votes, |one| **one == Opinion::Score(score))).max().unwrap_or(0);
            most > second + remaining
        }
        Reduce::Median => {
            let plain = Reduction { min_agreement: None, ..rules.clone() };
            let with = |more: usize, score: f64| {
                let all: Vec<Opinion> =
                    votes.iter().copied().chain(std::iter::repeat_n(Opinion::Score(score), more)).collect();
                plain.reduced(&all)
            };
            let now = plain.reduced(votes);
            // Between the extremes a median only moves between their results.
            (1..=remaining).all(|more| with(more, f64::MIN) == now && with(more, f64::MAX) == now)
                && matches!(now, ReducedScore::Score(_))
        }
        Reduce::Mean | Reduce::Min | Reduce::Max | Reduce::Function(_) => false,
    }
}

fn share(part: usize, all: usize) -> f64 {
    part as f64 / all.max(1) as f64
}

fn score_of(opinion: &Opinion) -> Option<f64> {
    if let Opinion::Score(score) = opinion { Some(*score) } else { None }
}

/// The most common score, and how many votes it has.
fn most_common(votes: &[Opinion]) -> Option<(f64, usize)> {
    let counted =
        votes.iter().filter_map(score_of).map(|score| (score, count(votes, |one| **one == Opinion::Score(score))));
    counted.max_by_key(|(_, votes)| *votes)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// All results that votes can still come to, by trying every end of the rest: the scores that
    /// are there, some beyond and between, abstentions and failures.
    fn brute_force(rules: &Reduction, votes: &mut Vec<Opinion>, remaining: usize, found: &mut Vec<ReducedScore>) {
        if remaining == 0 {
            let reduced = rules.reduced(votes);
            if !found.contains(&reduced) {
                found.push(reduced);
            }
            return;
        }
        let scores = [-9.0, 0.0, 0.5, 1.0, 1.5, 2.0, 9.0, 10.0].map(Opinion::Score);
        for end in scores.into_iter().chain([Opinion::Abstained, Opinion::Failed]) {
            votes.push(end);
            brute_force(rules, votes, remaining - 1, found);
            votes.pop();
        }
    }

    fn opinion() -> impl Strategy<Value = Opinion> {
        prop_oneof![
            6 => (0..3).prop_map(|score| Opinion::Score(f64::from(score))),
            1 => Just(Opinion::Abstained),
            1 => Just(Opinion::Failed),
        ]
    }

    fn rules() -> impl Strategy<Value = (Reduce, Option<f64>)> {
        let reduce = prop_oneof![Just(Reduce::Median), Just(Reduce::Mean), Just(Reduce::Majority)];
        (reduce, prop::option::of(prop_oneof![Just(0.5), Just(0.6), Just(0.75), Just(1.0)]))
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(400))]
        /// compose-3: against trying all ends. A decided vote that `is_decided` misses costs
        /// requests, never the score.
        #[test]
        fn votes_stop_only_where_nothing_can_change(
            (reduce, min_agreement) in rules(), mut votes in prop::collection::vec(opinion(), 0..6), remaining in 0usize..4,
        ) {
            let needed = (votes.len() + remaining) / 2 + 1;
            let rules = Reduction { reduce, weights: Vec::new(), needed, min_agreement };
            let decided = is_decided(&rules, &votes, remaining);
            let mut found = Vec::new();
            brute_force(&rules, &mut votes, remaining, &mut found);
            if decided {
                prop_assert_eq!(found.len(), 1, "{:?} + {} may end as {:?}", votes, remaining, found);
                if min_agreement.is_none() || remaining == 0 {
                    let now = rules.reduced(&votes);
                    prop_assert!(found[0] == now || !matches!(found[0], ReducedScore::Score(_)));
                }
            } else if min_agreement.is_none() {
                prop_assert!(found.len() > 1, "{:?} + {} is decided: {:?}", votes, remaining, found);
            }
        }
    }

    #[test]
    fn as_few_votes_are_sent_as_can_decide() {
        let rules = |reduce, min_agreement| Reduction { reduce, weights: Vec::new(), needed: 3, min_agreement };
        let score = Opinion::Score;
        let majority = rules(Reduce::Majority, None);
        assert_eq!(worth_sending(&majority, &[], 5), 3);
        assert_eq!(worth_sending(&majority, &[score(1.0), score(1.0), score(0.0)], 2), 1);
        assert_eq!(worth_sending(&rules(Reduce::Median, None), &[], 5), 3);
        assert_eq!(worth_sending(&rules(Reduce::Mean, None), &[], 5), 5);
        assert_eq!(worth_sending(&rules(Reduce::Majority, Some(0.8)), &[], 5), 4);
        assert_eq!(worth_sending(&majority, &[Opinion::Failed, score(1.0), score(1.0)], 2), 1);
    }

    #[test]
    fn an_agreement_that_is_out_of_reach_ends_it() {
        let rules = Reduction { reduce: Reduce::Mean, weights: Vec::new(), needed: 3, min_agreement: Some(0.9) };
        let votes = [1.0, 2.0, 1.0].map(Opinion::Score);
        assert!(is_decided(&rules, &votes, 2));
        assert!(!is_decided(&rules, &[1.0, 1.0, 1.0].map(Opinion::Score), 2));
    }
}

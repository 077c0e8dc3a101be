//! Strengths out of comparisons, by the model of Bradley and Terry: one that is stronger by `d`
//! wins with probability `1 / (1 + exp(-d))`.
//!
//! - The likelihood has a penalty on large strengths, so that there is one best fit, also if a
//!   member won all or was never compared; who was not compared at all has strength 0.
//! - A score is the probability of a win over the others of the group, on average: between 0 and 1.

/// One comparison: `first` won with this share, 1/2 for a tie.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ComparedPair {
    pub first: usize,
    pub second: usize,
    pub share: f64,
}

/// Cost of a large strength: as much as ten comparisons in a hundred that were tied with an average
/// member.
const PENALTY: f64 = 0.1;
/// Newton's method takes fewer than ten steps; the bound is for what nobody thought of.
const STEPS: usize = 60;
const CLOSE: f64 = 1e-10;

/// Returns the strengths of `members` members, 0 on average.
#[must_use]
pub fn strengths(members: usize, comparisons: &[ComparedPair]) -> Vec<f64> {
    fit(members, comparisons, PENALTY)
}

/// The scores of members with these strengths; 1/2 for the only one.
#[must_use]
pub fn scores(strengths: &[f64]) -> Vec<f64> {
    let others = strengths.len().saturating_sub(1);
    if others == 0 {
        return vec![0.5; strengths.len()];
    }
    let of = |place: usize| {
        let wins = strengths.iter().enumerate().filter(|(other, _)| *other != place);
        wins.map(|(_, other)| chance(strengths[place] - other)).sum::<f64>() / others as f64
    };
    (0..strengths.len()).map(of).collect()
}

/// The share of comparisons that each member won, ties half; `None` without any.
#[must_use]
pub fn win_rates(members: usize, comparisons: &[ComparedPair]) -> Vec<Option<f64>> {
    let mut counted = vec![(0.0, 0usize); members];
    for ComparedPair { first, second, share } in comparisons {
        for (place, won) in [(*first, *share), (*second, 1.0 - share)] {
            counted[place] = (counted[place].0 + won, counted[place].1 + 1);
        }
    }
    counted.into_iter().map(|(won, games)| (games > 0).then(|| won / games as f64)).collect()
}

fn chance(ahead: f64) -> f64 {
    1.0 / (1.0 + (-ahead).exp())
}

fn fit(members: usize, comparisons: &[ComparedPair], penalty: f64) -> Vec<f64> {
    let mut at = vec![0.0; members];
    let mut loss = loss_of(&at, comparisons, penalty);
    for _ in 0..STEPS {
        let slope = slope_of(&at, comparisons, penalty);
        if slope.iter().all(|part| part.abs() < CLOSE) {
            break;
        }
        let step = newton_step(&at, &slope, comparisons, penalty);
        // Halved until it leads down: the loss is convex, so some length does.
        let mut length = 1.0;
        let (next, next_loss) = loop {
            let next: Vec<f64> = at.iter().zip(&step).map(|(at, step)| at - length * step).collect();
            let next_loss = loss_of(&next, comparisons, penalty);
            if next_loss <= loss || length < 1e-6 {
                break (next, next_loss);
            }
            length /= 2.0;
        };
        (at, loss) = (next, next_loss);
    }
    at
}

fn loss_of(at: &[f64], comparisons: &[ComparedPair], penalty: f64) -> f64 {
    let of = |one: &ComparedPair| {
        let ahead = at[one.first] - at[one.second];
        // -log of the chance of each outcome, which never overflows this way.
        let softplus = |x: f64| x.max(0.0) + (-x.abs()).exp().ln_1p();
        one.share * softplus(-ahead) + (1.0 - one.share) * softplus(ahead)
    };
    comparisons.iter().map(of).sum::<f64>() + at.iter().map(|at| penalty / 2.0 * at * at).sum::<f64>()
}

fn slope_of(at: &[f64], comparisons: &[ComparedPair], penalty: f64) -> Vec<f64> {
    let mut slope: Vec<f64> = at.iter().map(|at| penalty * at).collect();
    for one in comparisons {
        let off = chance(at[one.first] - at[one.second]) - one.share;
        slope[one.first] += off;
        slope[one.second] -= off;
    }
    slope
}

/// The solution of "curvature times step is slope", by conjugate gradients.
fn newton_step(at: &[f64], slope: &[f64], comparisons: &[ComparedPair], penalty: f64) -> Vec<f64> {
    let curvatures: Vec<f64> = comparisons
        .iter()
        .map(|one| {
            let chance = chance(at[one.first] - at[one.second]);
            chance * (1.0 - chance)
        })
        .collect();
    let times = |vector: &[f64]| {
        let mut product: Vec<f64> = vector.iter().map(|part| penalty * part).collect();
        for (one, curvature) in comparisons.iter().zip(&curvatures) {
            let pull = curvature * (vector[one.first] - vector[one.second]);
            product[one.first] += pull;
            product[one.second] -= pull;
        }
        product
    };
    let dot = |one: &[f64], other: &[f64]| one.iter().zip(other).map(|(a, b)| a * b).sum::<f64>();
    let mut step = vec![0.0; at.len()];
    let (mut rest, mut direction) = (slope.to_vec(), slope.to_vec());
    let mut left = dot(&rest, &rest);
    for _ in 0..at.len().saturating_mul(2) {
        if left < CLOSE * CLOSE {
            break;
        }
        let product = times(&direction);
        let length = left / dot(&direction, &product);
        for place in 0..step.len() {
            step[place] += length * direction[place];
            rest[place] -= length * product[place];
        }
        let next = dot(&rest, &rest);
        for (direction, rest) in direction.iter_mut().zip(&rest) {
            *direction = rest + next / left * *direction;
        }
        left = next;
    }
    step
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn won(first: usize, second: usize) -> ComparedPair {
        ComparedPair { first, second, share: 1.0 }
    }

    /// The American League of 1987, wins of a row's team over a column's, and the strengths that
    /// the literature gives (Agresti, Categorical Data Analysis, section 10.6), Baltimore 0.
    const WINS: [[usize; 7]; 7] = [
        [0, 7, 9, 7, 7, 9, 11],
        [6, 0, 7, 5, 11, 9, 9],
        [4, 6, 0, 7, 7, 8, 12],
        [6, 8, 6, 0, 6, 7, 10],
        [6, 2, 6, 7, 0, 7, 12],
        [4, 4, 5, 6, 6, 0, 6],
        [2, 4, 1, 3, 1, 7, 0],
    ];
    const KNOWN: [f64; 7] = [1.58, 1.44, 1.29, 1.25, 1.11, 0.68, 0.0];

    fn games() -> Vec<ComparedPair> {
        let pairs = (0..7).flat_map(|one| (0..7).map(move |other| (one, other)));
        pairs.flat_map(|(one, other)| std::iter::repeat_n(won(one, other), WINS[one][other])).collect()
    }

    #[test]
    fn strengths_are_those_of_the_literature() {
        let found = fit(7, &games(), 1e-9);
        for (team, known) in KNOWN.iter().enumerate() {
            assert!((found[team] - found[6] - known).abs() < 0.006, "{team}: {} and {known}", found[team] - found[6]);
        }
    }

    /// Computes them by the steps of Zermelo, with `penalty` as ties against a member of strength
    /// 0: another regulariser, which agrees where it is small.
    fn zermelo(members: usize, comparisons: &[ComparedPair]) -> Vec<f64> {
        let mut worth = vec![1.0f64; members];
        for _ in 0..20_000 {
            let (mut wins, mut rates) = (vec![0.0; members], vec![0.0; members]);
            for one in comparisons {
                wins[one.first] += one.share;
                wins[one.second] += 1.0 - one.share;
                let rate = 1.0 / (worth[one.first] + worth[one.second]);
                rates[one.first] += rate;
                rates[one.second] += rate;
            }
            for place in 0..members {
                worth[place] = wins[place] / rates[place];
            }
            let mean = worth.iter().map(|worth| worth.ln()).sum::<f64>() / members as f64;
            worth.iter_mut().for_each(|worth| *worth /= mean.exp());
        }
        worth.into_iter().map(f64::ln).collect()
    }

    #[test]
    fn another_way_finds_the_same() {
        let games = games();
        let (one, other) = (fit(7, &games, 1e-9), zermelo(7, &games));
        let mean = one.iter().sum::<f64>() / 7.0;
        for team in 0..7 {
            assert!((one[team] - mean - other[team]).abs() < 1e-4, "{team}: {} and {}", one[team] - mean, other[team]);
        }
    }

    #[test]
    fn winner_of_all_has_a_finite_strength() {
        let all: Vec<ComparedPair> = (0..6).flat_map(|one| (one + 1..6).map(move |other| won(one, other))).collect();
        let found = strengths(6, &all);
        assert!(found.iter().all(|one| one.is_finite() && one.abs() < 20.0), "{found:?}");
        assert!(found.windows(2).all(|pair| pair[0] > pair[1] + 0.1), "{found:?}");
        assert_eq!(strengths(3, &[won(0, 1)])[2], 0.0, "not compared");
        let scored = scores(&found);
        assert!(scored.iter().all(|one| (0.0..=1.0).contains(one)) && scored.windows(2).all(|pair| pair[0] > pair[1]));
        assert_eq!(scores(&strengths(1, &[])), [0.5]);
    }

    #[test]
    fn ties_make_equals() {
        let tied: Vec<ComparedPair> =
            (0..4).map(|one| ComparedPair { first: one, second: (one + 1) % 4, share: 0.5 }).collect();
        assert!(strengths(4, &tied).iter().all(|one| one.abs() < 1e-9));
        assert_eq!(win_rates(5, &tied), [Some(0.5), Some(0.5), Some(0.5), Some(0.5), None]);
    }

    proptest! {
        /// The fit is a minimum, for any comparisons; seen from the other side it is the same; and
        /// a member that does better in the same comparisons never gets a lower score.
        #[test]
        fn the_fit_is_the_best_one(
            games in prop::collection::vec((0usize..8, 1usize..8, 0u8..=4), 0..60), raised in 0usize..60,
        ) {
            let one = |(first, gap, share): &(usize, usize, u8)| {
                ComparedPair { first: *first, second: (first + gap) % 8, share: f64::from(*share) / 4.0 }
            };
            let mut games: Vec<ComparedPair> = games.iter().map(one).collect();
            let found = strengths(8, &games);
            let slope = slope_of(&found, &games, PENALTY);
            prop_assert!(slope.iter().all(|part| part.abs() < 1e-7), "{:?}", slope);
            prop_assert!(found.iter().sum::<f64>().abs() < 1e-6);
            let turned: Vec<ComparedPair> =
                games.iter().map(|one| ComparedPair { first: one.second, second: one.first, share: 1.0 - one.share }).collect();
            for (one, other) in found.iter().zip(strengths(8, &turned)) {
                prop_assert!((one - other).abs() < 1e-6);
            }
            if let Some(game) = games.get_mut(raised) {
                game.share = 1.0;
                let first = game.first;
                prop_assert!(strengths(8, &games)[first] >= found[first] - 1e-7);
            }
        }
    }
}

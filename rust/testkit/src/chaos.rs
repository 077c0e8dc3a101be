//! Random faults, drawn from a seed and the identity of a call: the same call gets the same fault
//! in every run, in any order.

use std::hash::{DefaultHasher, Hash, Hasher};
use std::time::Duration;

use guerdon_core::call::CallKind;
use guerdon_core::outcome::{Cell, FailureKind};

use crate::script::{Act, Ask, Script, failure};

/// Draws the fate of each attempt.
#[derive(Clone, Debug)]
pub struct Chaos {
    pub seed: u64,
    /// Number of attempts in a thousand that fail in some way.
    pub faults: u64,
    /// Longest run time of a call that isn't made to hang.
    pub longest: Duration,
    /// True if a call may run into its timeout.
    pub hangs: bool,
}

impl Chaos {
    fn draws(&self, ask: &Ask) -> fastrand::Rng {
        let mut hasher = DefaultHasher::new();
        let finish = ask.kind == CallKind::Finish;
        (self.seed, ask.batch, ask.function, finish, ask.first, ask.attempt, ask.handed).hash(&mut hasher);
        fastrand::Rng::with_seed(hasher.finish())
    }

    /// Draws a cell: mostly numbers, some of them not rewards.
    fn cell(&self, draws: &mut fastrand::Rng, score: Option<f64>) -> Cell {
        let value = score.unwrap_or(0.0).mul_add(0.5, draws.f64() * 20.0 - 10.0);
        if draws.u64(0..1000) >= self.faults / 4 {
            return Cell::Value(value);
        }
        match draws.u8(0..5) {
            0 | 1 => Cell::Abstained,
            2 => Cell::Value(f64::NAN),
            3 => Cell::Value(1e39),
            _ => Cell::Invalid("no number".to_owned()),
        }
    }
}

impl Script for Chaos {
    fn act(&self, ask: &Ask) -> Act {
        let mut draws = self.draws(ask);
        let after = self.longest.mul_f64(draws.f64().powi(3));
        if draws.u64(0..1000) < self.faults {
            let lost_already = ask.handed > 1;
            return match draws.u8(0..11) {
                0..=2 => Act::Fail { after, failure: failure(FailureKind::Error) },
                3 => {
                    let hopeless = guerdon_core::outcome::Failure { retryable: false, ..failure(FailureKind::Error) };
                    Act::Fail { after, failure: hopeless }
                }
                4 | 5 => Act::Crash { after },
                6 if self.hangs => Act::Hang,
                7 if !lost_already => Act::Lose { after },
                8 if !lost_already => Act::Panic,
                9 if !lost_already => Act::GiveBack,
                // A list of the wrong length, if a list is required.
                10 if ask.kind != CallKind::Sample => {
                    Act::Return { after, cells: vec![Cell::Abstained; ask.samples + 1] }
                }
                _ => Act::Fail { after, failure: failure(FailureKind::Timeout) },
            };
        }
        let cells = (0..ask.samples).map(|n| self.cell(&mut draws, ask.scores.get(n).copied().flatten())).collect();
        if draws.u64(0..1000) < self.faults { Act::Late { after, cells } } else { Act::Return { after, cells } }
    }
}

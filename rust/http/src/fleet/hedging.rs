//! When a request is sent a second time, to another endpoint. Arithmetic only.
//!
//! The share of calls that are sent twice is bounded, whatever the endpoints do; a few in a row are
//! allowed after a quiet time.

use std::time::Duration;

use guerdon_core::settings::seconds;
use serde::Deserialize;

/// Time after which a waiting request is sent again.
#[derive(Clone, Copy, Debug, PartialEq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum HedgeAfter {
    /// The time of this share of an endpoint's answers: of the typical endpoint, so that a slow one
    /// does not stretch it.
    Quantile(f64),
    #[serde(rename = "seconds", deserialize_with = "seconds")]
    Time(Duration),
}

/// Rule for sending requests of a function twice.
#[derive(Clone, Copy, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Hedging {
    pub after: HedgeAfter,
    /// Largest share of all calls.
    pub share: f64,
}

/// Calls whose share may be hedged in a row.
const BURST: f64 = 256.0;

/// Keeps the share of calls that are hedged.
#[derive(Clone, Copy, Debug)]
pub struct HedgeBudget {
    share: f64,
    credit: f64,
}

impl HedgeBudget {
    pub const fn new(share: f64) -> Self {
        Self { share, credit: 0.0 }
    }

    /// A call was sent.
    pub fn count_call(&mut self) {
        self.credit = (self.credit + self.share).min((self.share * BURST).max(1.0));
    }

    /// Returns whether one more may be sent twice. Half of the burst is kept for urgent ones: whose
    /// endpoint is slow, where the request may be.
    pub fn allows(&self, urgent: bool) -> bool {
        let kept = if urgent { 0.0 } else { self.share * BURST / 2.0 };
        self.credit >= kept + 1.0
    }

    /// One more is sent twice.
    pub fn take(&mut self) {
        self.credit -= 1.0;
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn the_share_holds(share in 0.0..=1.0_f64, wants in prop::collection::vec(any::<bool>(), 1..2000)) {
            let mut budget = HedgeBudget::new(share);
            let (mut calls, mut hedged) = (0.0, 0.0);
            for wanted in wants {
                budget.count_call();
                calls += 1.0;
                if wanted && budget.allows(calls > 500.0) {
                    budget.take();
                    hedged += 1.0;
                }
                prop_assert!(hedged <= share * calls + 1e-6, "{hedged} of {calls}");
            }
        }
    }
}

//! The arithmetic of a cap: what was spent, and whether one more request may go.
//!
//! - A request in flight counts as the mean of those whose cost is known; before there is one, as
//!   the least that it must cost. So does one that has ended and whose cost nobody knows.
//! - So what is spent goes beyond the cap by no more than what these cost beyond that.

/// What was spent under a cap.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct Ledger {
    pub spent: f64,
    /// Requests whose cost is known.
    pub known: u64,
    /// What those cost, about, whose cost nobody knows, and how many they are.
    pub guessed: f64,
    pub unknown: u64,
}

/// What requests cost that have ended.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct EndedCosts {
    pub spent: f64,
    pub known: u64,
    pub unknown: u64,
    /// What the unknown ones cost at least.
    pub least: f64,
}

impl Ledger {
    /// Counts requests that have ended.
    #[expect(clippy::cast_precision_loss, reason = "a number of requests")]
    pub(super) fn add(&mut self, ended: EndedCosts) {
        self.spent += ended.spent;
        self.known = self.known.saturating_add(ended.known);
        if ended.unknown > 0 {
            let count = ended.unknown as f64;
            self.guessed += self.estimate(ended.least / count) * count;
            self.unknown = self.unknown.saturating_add(ended.unknown);
        }
    }

    /// What a request costs, about; `least` if none is known.
    #[expect(clippy::cast_precision_loss, reason = "a number of requests")]
    pub(super) fn estimate(&self, least: f64) -> f64 {
        if self.known == 0 { least } else { self.spent / self.known as f64 }
    }

    /// Whether another request may go beside so many in flight.
    #[expect(clippy::cast_precision_loss, reason = "a number of requests")]
    pub(super) fn admits(&self, max_cost: f64, in_flight: u64, least: f64) -> bool {
        let all = self.spent + self.guessed;
        all < max_cost && all + self.estimate(least) * (in_flight as f64 + 1.0) <= max_cost
    }

    /// Whether no request may go, even when nothing is in flight.
    pub(super) fn is_exhausted(&self, max_cost: f64) -> bool {
        !self.admits(max_cost, 0, 0.0)
    }

    /// Whether it can be: a file may hold anything.
    pub(super) fn is_plausible(&self) -> bool {
        let of = |cost: f64, count: u64| cost.is_finite() && cost >= 0.0 && (count > 0 || cost <= 0.0);
        of(self.spent, self.known) && of(self.guessed, self.unknown)
    }
}

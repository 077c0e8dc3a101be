//! The arithmetic of a cap: what was spent, and whether one more request may go.
//!
//! - A request in flight counts as the mean of those whose cost is known; before there is one, as
//!   the least that it must cost.
//! - So what is spent goes beyond the cap by no more than what the requests in flight cost beyond
//!   that.

/// What was spent under a cap.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct Ledger {
    pub spent: f64,
    /// Requests whose cost is known.
    pub known: u64,
}

impl Ledger {
    /// Counts a request whose cost is known.
    pub(super) fn add(&mut self, other: Self) {
        self.spent += other.spent;
        self.known = self.known.saturating_add(other.known);
    }

    /// What a request costs, about; `least` if none is known.
    #[expect(clippy::cast_precision_loss, reason = "a number of requests")]
    pub(super) fn estimate(&self, least: f64) -> f64 {
        if self.known == 0 { least } else { self.spent / self.known as f64 }
    }

    /// Whether another request may go beside so many in flight.
    #[expect(clippy::cast_precision_loss, reason = "a number of requests")]
    pub(super) fn admits(&self, max_cost: f64, in_flight: u64, least: f64) -> bool {
        self.spent < max_cost && self.spent + self.estimate(least) * (in_flight as f64 + 1.0) <= max_cost
    }

    /// Whether no request may go, even when nothing is in flight.
    pub(super) fn is_exhausted(&self, max_cost: f64) -> bool {
        !self.admits(max_cost, 0, 0.0)
    }

    /// Whether it can be: a file may hold anything.
    pub(super) fn is_plausible(&self) -> bool {
        self.spent.is_finite() && self.spent >= 0.0 && (self.known > 0 || self.spent <= 0.0)
    }
}

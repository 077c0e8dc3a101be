//! The arithmetic of a cap: the amount spent, and whether one more request may go.
//!
//! - A request in flight counts with the mean of the reported costs, or before the first report
//!   with its highest possible cost. An ended request without a reported cost counts the same way.
//! - Before a request has ended, requests without a bound of their answer go one at a time.
//! - A request goes beside others in flight only if all of them could reach their highest cost. If
//!   answers have no bound, that is four times the largest reported cost.
//! - The amount spent therefore exceeds the cap by at most one request.

use crate::words::words_of;

/// Spending under a cap.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct Ledger {
    pub spent: f64,
    /// Number of requests with a reported cost.
    pub known: u64,
    /// Estimated cost of the requests without a reported cost, and their number.
    pub guessed: f64,
    pub unknown: u64,
    /// The largest reported cost.
    pub largest: f64,
}

words_of!(Ledger: spent, known, guessed, unknown, largest);

/// Costs of requests that have ended.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct EndedCosts {
    pub spent: f64,
    pub known: u64,
    pub unknown: u64,
    /// Highest possible cost of those without a reported cost.
    pub most: f64,
    /// The largest reported cost.
    pub largest: f64,
}

/// Highest cost of a request without a bound, as a multiple of the largest reported cost.
const BEYOND_THE_LARGEST: f64 = 4.0;

/// Highest cost of a request before its report.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Reserve {
    pub most: f64,
    /// True if its answer has a bound; otherwise `most` is a guess.
    pub bounded: bool,
}

/// Decision on another request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Room {
    Free,
    /// There may be room after the report of a request in flight.
    Later,
    Full,
}

impl Ledger {
    /// Counts requests that have ended.
    #[expect(clippy::cast_precision_loss, reason = "a number of requests")]
    pub(super) fn add(&mut self, ended: EndedCosts) {
        self.spent += ended.spent;
        self.known = self.known.saturating_add(ended.known);
        self.largest = self.largest.max(ended.largest);
        if ended.unknown > 0 {
            let count = ended.unknown as f64;
            self.guessed += self.estimate(ended.most / count) * count;
            self.unknown = self.unknown.saturating_add(ended.unknown);
        }
    }

    /// Returns the estimated cost of a request; `most` before the first report.
    #[expect(clippy::cast_precision_loss, reason = "a number of requests")]
    pub(super) fn estimate(&self, most: f64) -> f64 {
        if self.known == 0 { most } else { self.spent / self.known as f64 }
    }

    /// Returns whether another request may go beside `in_flight` in flight.
    #[expect(clippy::cast_precision_loss, reason = "a number of requests")]
    pub(super) fn room(&self, max_cost: f64, in_flight: u64, asked: &Reserve) -> Room {
        let all = self.spent + self.guessed;
        let fits = all + self.estimate(asked.most) * (in_flight as f64 + 1.0) <= max_cost;
        // A server that once reported no tokens may never report any, so its requests are counted
        // by the guess.
        let bounded = asked.bounded || self.unknown > 0;
        let known_most = if asked.bounded { asked.most } else { self.largest * BEYOND_THE_LARGEST };
        let others_fit = all + known_most * in_flight as f64 <= max_cost;
        match (self.known, in_flight) {
            _ if all >= max_cost => Room::Full,
            (0, 0) if fits || !bounded => Room::Free,
            (0, 1..) if !(fits && bounded) => Room::Later,
            _ if fits && others_fit => Room::Free,
            _ if fits => Room::Later,
            _ => Room::Full,
        }
    }

    /// Returns whether no request may go even if none is in flight.
    pub(super) fn is_exhausted(&self, max_cost: f64) -> bool {
        self.room(max_cost, 0, &Reserve::default()) == Room::Full
    }

    /// Returns whether the values are possible, since a file may hold anything.
    pub(super) fn is_plausible(&self) -> bool {
        let of = |cost: f64, count: u64| cost.is_finite() && cost >= 0.0 && (count > 0 || cost <= 0.0);
        of(self.spent, self.known) && of(self.guessed, self.unknown) && of(self.largest, self.known)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_reserve_the_most_they_can_cost_until_a_cost_is_known() {
        let (bounded, open) = (Reserve { most: 0.4, bounded: true }, Reserve { most: 0.4, bounded: false });
        let none = Ledger::default();
        assert_eq!(none.room(1.0, 1, &bounded), Room::Free, "two of 0.4 fit");
        assert_eq!(none.room(1.0, 2, &bounded), Room::Later);
        assert_eq!(none.room(0.3, 0, &bounded), Room::Full, "one may cost more than the cap");
        assert_eq!((none.room(0.3, 0, &open), none.room(9.0, 1, &open)), (Room::Free, Room::Later), "one at a time");
        let mut ledger = none;
        ledger.add(EndedCosts { unknown: 2, most: 0.8, ..EndedCosts::default() });
        assert_eq!(ledger.room(9.0, 5, &open), Room::Free, "by the guess, where costs stay unknown");
        assert_eq!((ledger.guessed, ledger.room(1.0, 0, &bounded)), (0.8, Room::Full));
        ledger.add(EndedCosts { spent: 0.05, known: 1, largest: 0.05, ..EndedCosts::default() });
        assert_eq!(ledger.room(1.0, 0, &bounded), Room::Free, "by the mean");
        assert_eq!(ledger.room(1.0, 1, &bounded), Room::Later, "the one in flight may cost 0.4");
        assert_eq!(ledger.room(1.2, 1, &open), Room::Free, "four times 0.05 is left");
        assert_eq!(ledger.room(1.0, 3, &bounded), Room::Full);
        assert_eq!(ledger.room(1.3, 2, &open), Room::Free);
        assert_eq!(ledger.room(1.3, 3, &open), Room::Later);
    }
}

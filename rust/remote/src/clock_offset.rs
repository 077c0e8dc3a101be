//! Offset of an agent's clock from the driver's, from messages and their answers.
//!
//! The answer of the shortest round trip counts, because its error is at most half of that time. It
//! ages, since clocks drift.

/// Time by which a round trip counts as longer after each later answer.
const AGEING_NS: u64 = 10_000;

#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct ClockOffset {
    /// The agent's clock minus the driver's.
    ahead_ns: i128,
    /// Round trip of the answer in use, `None` before the first.
    round_trip_ns: Option<u64>,
}

impl ClockOffset {
    /// Updates the offset with an answer: sent and received by the driver's clock, answered by the
    /// agent's.
    pub(crate) fn learn(&mut self, asked_ns: u64, heard_ns: u64, agent_ns: u64) {
        let Some(round_trip_ns) = heard_ns.checked_sub(asked_ns) else { return };
        match &mut self.round_trip_ns {
            Some(known) if *known < round_trip_ns => *known = known.saturating_add(AGEING_NS),
            known => {
                *known = Some(round_trip_ns);
                self.ahead_ns = i128::from(agent_ns) - i128::from(asked_ns) - i128::from(round_trip_ns / 2);
            }
        }
    }

    /// Converts a time of the agent's clock to the driver's, limited to `earliest_ns` and
    /// `latest_ns`.
    pub(crate) fn to_driver(self, agent_ns: u64, earliest_ns: u64, latest_ns: u64) -> u64 {
        let ns = (i128::from(agent_ns) - self.ahead_ns).clamp(0, i128::from(u64::MAX));
        u64::try_from(ns).unwrap_or(0).min(latest_ns).max(earliest_ns)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_shortest_round_trip_counts() {
        let mut offset = ClockOffset::default();
        offset.learn(1_000, 1_100, 5_050);
        assert_eq!(offset.to_driver(5_060, 0, u64::MAX), 1_060);
        offset.learn(2_000, 9_000, 6_050);
        assert_eq!(offset.to_driver(5_060, 0, u64::MAX), 1_060);
        offset.learn(20_000, 20_020, 24_000);
        assert_eq!(offset.to_driver(24_000, 0, u64::MAX), 20_010);
    }

    #[test]
    fn no_clock_makes_it_overflow() {
        let mut offset = ClockOffset::default();
        offset.learn(u64::MAX, 0, 0);
        offset.learn(0, u64::MAX, u64::MAX);
        offset.learn(u64::MAX, u64::MAX, 0);
        assert_eq!(offset.to_driver(u64::MAX, 3, 9), 9);
        assert_eq!(offset.to_driver(0, 3, 9), 9);
        offset.learn(0, 0, u64::MAX);
        assert_eq!(offset.to_driver(0, 3, 9), 3);
    }
}

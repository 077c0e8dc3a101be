//! Calls that ended with a number and are settled a little later, with those that end next: what they complete is announced together.
//!
//! - V-1  They are settled once `SOON_NS` have passed, by the times that calls say, from the start of the first; when the lane says so; and
//!   with the frame. So a call that took long is settled at once, and a lane that times its calls looks in on the frame as often as it
//!   wants them settled.
//! - V-2  Until then their cells are open. A lane settles them before the scheduler ends what is open (L-9 of `lane`); what ends them all the same,
//!   as a quorum may that was reached meanwhile, makes what they gave too late (F-3).

use crate::call::CallKind;
use crate::frame::Frame;
use crate::outcome::{Cell, Times};

/// Long beside a call that is worth the trouble, short beside the time in which someone would notice.
const SOON_NS: u64 = 500_000;

/// A call of one sample, and what it gave.
pub(super) struct Ended {
    call: usize,
    value: f64,
    times: Times,
}

impl Frame {
    /// Ends a call of one sample with a number, which is settled soon (V-1).
    pub fn complete_soon(&mut self, call: usize, value: f64, times: Times) {
        if self.kind != CallKind::Sample || self.permit.is_some() || !self.records.is_empty() {
            self.complete(call, Cell::Value(value), times);
            return;
        }
        if !std::mem::take(&mut self.pending[call]) {
            return;
        }
        self.count(times);
        self.ended.push(Ended { call, value, times });
        let since_ns = self.ended[0].times.started_ns;
        if times.started_ns.saturating_add(times.run_ns).saturating_sub(since_ns) >= SOON_NS {
            self.complete_ended();
        }
    }

    /// Settles what has ended (V-1).
    pub fn complete_ended(&mut self) {
        if self.ended.is_empty() {
            return;
        }
        // Calls of one sample are all of one batch.
        let (slice, function, scheduler) = (&self.slices[0], self.function, &self.scheduler);
        let claimed = self.ended.drain(..).filter_map(|Ended { call, value, times }| {
            let claim = slice.claim(function, &slice.calls[call]);
            if claim.is_none() {
                scheduler.count_late();
            }
            Some((claim?, value, times))
        });
        scheduler.complete_all(slice.batch(), function, claimed);
    }
}

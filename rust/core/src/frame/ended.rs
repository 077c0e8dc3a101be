//! Calls that ended with a number and are completed a little later, with those that end next: the
//! groups that they complete are announced together.
//!
//! They are completed `SOON_NS` after the first of them started, by the times that calls report;
//! when the lane calls `complete_ended`; and with the frame. A long call is therefore completed at
//! once. Until then their cells are open: a lane completes them before the scheduler ends open
//! calls (lane-1). If the scheduler ends them first all the same, they are too late.

use crate::outcome::Times;

/// Long enough to complete many cheap calls together, too short for a user to notice.
const SOON_NS: u64 = 500_000;

/// A call of one sample, and its result.
pub(super) struct EndedCall {
    pub call: usize,
    pub value: f64,
    pub times: Times,
}

#[derive(Default)]
pub(super) struct EndedCalls(Vec<EndedCall>);

impl EndedCalls {
    /// Adds a call; true if it is time to complete all of them.
    pub(super) fn push(&mut self, ended: EndedCall) -> bool {
        let end_ns = ended.times.started_ns.saturating_add(ended.times.run_ns);
        self.0.push(ended);
        end_ns.saturating_sub(self.0[0].times.started_ns) >= SOON_NS
    }

    pub(super) fn all(&self) -> &[EndedCall] {
        &self.0
    }

    pub(super) fn take(&mut self) -> Vec<EndedCall> {
        std::mem::take(&mut self.0)
    }
}

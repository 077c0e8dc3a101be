//! Result of the running call of a worker that was killed with the process that forked it.
//!
//! If other workers were lost too, the call gets another attempt. It then has a dedicated loader,
//! after a second such loss a dedicated zygote, and fails if that is lost.

use guerdon_core::clock::nanos;
use guerdon_core::loss_ledger::{Charge, LossLedger, LossProgress};
use guerdon_core::outcome::{FailureKind, Times};

use super::loss::{Loss, WITH_ITS_OWN};
use super::worker_frame::{Current, WorkerFrame, failure};
use crate::shared_page::{DECODING, PageSnapshot};

impl WorkerFrame {
    pub(super) fn lose_with_zygote(
        &mut self,
        hand: Current,
        page: &PageSnapshot,
        standing: LossProgress,
        ledger: &LossLedger<()>,
        now_ns: u64,
    ) {
        let (call, setup) = match hand {
            Current::Nothing => return,
            Current::Phase(DECODING) => (0, None),
            Current::Phase(phase) => (0, Some(phase)),
            Current::Call(call) => (call, None),
        };
        if !self.frame.is_pending(call) {
            return;
        }
        let loss = Loss::Zygote(standing);
        let times = if setup.is_some() { Times::default() } else { self.times(page, call, Some(now_ns)) };
        if self.is_overdue(times) {
            self.fail_running(call, times, &loss);
            return;
        }
        match (ledger.lost(&self.frame, call, &(), standing), setup) {
            (Charge::GoesBack, _) => {} // with the other calls that did not end
            (Charge::Failed(_), _) => self.fail_running(call, times, &loss),
            (Charge::Guilty(_), Some(phase)) => self.charge_setup(phase, &loss),
            (Charge::Guilty(_), None) => {
                let reason = format!("the worker process {WITH_ITS_OWN}");
                self.frame.fail(call, failure(FailureKind::Crashed, reason, None, false, None), times);
            }
        }
    }

    /// Returns whether this is the first death of a worker by itself in the call, after a zygote
    /// was lost with it. The call is then tried once more, as any call is.
    pub(super) fn is_excused(&self, hand: Current, page: &PageSnapshot, ledger: &LossLedger<()>, now_ns: u64) -> bool {
        let call = match hand {
            Current::Nothing => return false,
            Current::Phase(_) => 0,
            Current::Call(call) if self.is_overdue(self.times(page, call, Some(now_ns))) => return false,
            Current::Call(call) => call,
        };
        self.frame.is_pending(call) && ledger.died(&self.frame, call, &()) == Charge::GoesBack
    }

    pub(super) fn is_overdue(&self, times: Times) -> bool {
        times.run_ns > nanos(self.frame.function().policy.timeout)
    }
}

//! Measures the output of the running call, if its function has a `max_output`.
//!
//! The call is alone with its worker, so all output between sending and answer comes from it,
//! except during loading and setup: if the worker had to do either, the count begins after it. A
//! call over its bound is signalled once and killed `PATIENCE` later; it fails even if it ends
//! before that.

use std::time::Duration;

use guerdon_core::clock::nanos;

use crate::resource_limits::ByteSize;

/// Time that a call has to end after the signal to stop printing.
const PATIENCE: Duration = Duration::from_millis(100);

/// The count for the running frame.
#[derive(Default)]
pub(super) struct OutputMeter {
    gauge: Option<MeteredCall>,
}

struct MeteredCall {
    most: u64,
    /// Bytes printed before the call.
    base: u64,
    begun: bool,
    signalled_ns: Option<u64>,
}

/// Action on a call that printed too much.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum OutputAction {
    Tell,
    Wait,
    Kill,
}

impl OutputMeter {
    /// Records that a frame of a function with this `max_output` is sent to a worker.
    pub(super) fn sent(&mut self, most: Option<u64>, printed: impl FnOnce() -> u64) {
        self.gauge = most.map(|most| MeteredCall { most, base: printed(), begun: false, signalled_ns: None });
    }

    /// Records that the worker begins the call; `prepared` if it has loaded or set up the function
    /// for it.
    pub(super) fn begun(&mut self, prepared: bool, printed: impl FnOnce() -> u64) {
        if let Some(gauge) = &mut self.gauge {
            gauge.begun = true;
            if prepared {
                gauge.base = printed();
            }
        }
    }

    /// Returns the reason why the call fails, if it is over its bound.
    pub(super) fn over(&self, printed: impl FnOnce() -> u64) -> Option<String> {
        let gauge = self.gauge.as_ref().filter(|gauge| gauge.begun)?;
        let own = printed().saturating_sub(gauge.base);
        (own > gauge.most)
            .then(|| format!("printed {own} bytes, more than its max_output of {} allows", ByteSize(gauge.most)))
    }

    /// Returns the action on a call that is over its bound.
    pub(super) fn action(&mut self, now_ns: u64) -> OutputAction {
        let Some(gauge) = &mut self.gauge else { return OutputAction::Wait };
        match gauge.signalled_ns {
            None => {
                gauge.signalled_ns = Some(now_ns);
                OutputAction::Tell
            }
            Some(signalled) if now_ns.saturating_sub(signalled) >= nanos(PATIENCE) => OutputAction::Kill,
            Some(_) => OutputAction::Wait,
        }
    }

    /// Returns whether the running call was signalled to end because of its output.
    pub(super) fn signalled(&self) -> bool {
        self.gauge.as_ref().is_some_and(|gauge| gauge.signalled_ns.is_some())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn meter(most: u64) -> OutputMeter {
        OutputMeter { gauge: Some(MeteredCall { most, base: 100, begun: false, signalled_ns: None }) }
    }

    #[test]
    fn only_what_the_call_itself_prints_counts() {
        let mut meter = meter(10);
        assert_eq!(meter.over(|| 5000), None);
        meter.begun(true, || 5000);
        assert_eq!(meter.over(|| 5010), None);
        let why = meter.over(|| 5011).unwrap();
        assert_eq!(why, "printed 11 bytes, more than its max_output of 10 bytes allows");
    }

    #[test]
    fn without_loading_it_counts_from_the_sending() {
        let mut meter = meter(10);
        meter.begun(false, || 5000);
        assert!(meter.over(|| 111).is_some());
    }

    #[test]
    fn a_call_is_signalled_once_then_killed() {
        let mut meter = meter(10);
        assert!(!meter.signalled());
        let orders = [0, 1, 99, 100].map(|ms| meter.action(ms * 1_000_000));
        assert_eq!(orders, [OutputAction::Tell, OutputAction::Wait, OutputAction::Wait, OutputAction::Kill]);
        assert!(meter.signalled());
    }

    #[test]
    fn a_frame_without_a_bound_is_not_judged() {
        assert_eq!(OutputMeter::default().over(|| u64::MAX), None);
    }
}

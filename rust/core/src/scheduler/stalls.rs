//! The watchdog: checks at intervals whether calls end, and reports when none has ended for long.
//! It is one task, which reads a few numbers.

use std::sync::{Arc, Weak};
use std::time::Duration;

use tracing::warn;

use crate::batch::Batch;
use crate::scheduler::state::SchedulerCore;
use crate::stall::{Activity, StallDetector};

/// Watches until the engine is gone; `report` is called with the duration of a stall.
pub(super) async fn watch(core: Weak<SchedulerCore>, after: Duration, report: Arc<dyn Fn(Duration) + Send + Sync>) {
    let mut detector = StallDetector::new(after);
    loop {
        let (clock, next_ns) = {
            let Some(core) = core.upgrade() else { return };
            let now_ns = core.clock.now_ns();
            let Some(activity) = core.activity() else { return };
            if let Some(stalled) = detector.look(now_ns, activity) {
                warn!(stalled_s = stalled.as_secs(), "no call ends");
                report(stalled);
            }
            (core.clock, now_ns.saturating_add(crate::clock::nanos(detector.tick())))
        };
        clock.sleep_until_ns(next_ns).await;
    }
}

impl SchedulerCore {
    /// Returns the present activity of the engine; `None` once it is closed.
    fn activity(&self) -> Option<Activity> {
        let (in_flight, open, ended) = {
            let state = self.state.lock();
            if state.closed {
                return None;
            }
            let in_flight: Vec<bool> = state.in_flight.iter().map(|hand| hand.calls > 0 || hand.frames > 0).collect();
            let any = in_flight.contains(&true);
            let open: Vec<Arc<Batch>> =
                if any { state.works.all().map(|work| work.batch.clone()).collect() } else { Vec::new() };
            (in_flight, open, state.ended)
        };
        if open.is_empty() {
            return Some(Activity { running: false, ended: (ended, 0) });
        }
        // Completes calls that lanes hold back for a moment to complete them together.
        self.complete_ended();
        let running = in_flight
            .iter()
            .enumerate()
            .any(|(function, in_flight)| *in_flight && !self.lane(function).waits_on_purpose(function));
        let filled = open.iter().map(|batch| batch.filled_cells()).sum();
        Some(Activity { running, ended: (ended, filled) })
    }
}

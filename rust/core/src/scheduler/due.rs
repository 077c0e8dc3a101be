//! Does the work that is due: retries, timeouts, early deliveries, and limiters' pending writes.

use std::sync::{Arc, Weak};

use tokio::sync::Notify;

use crate::function::FunctionId;
use crate::scheduler::state::{SchedulerCore, SchedulerState};
use crate::scheduler::timer_queue::Due;

/// Longest time until a limit that processes share gets the ends of calls. Simultaneous ends are
/// reported together.
const FLUSH_NS: u64 = 2_000_000;

/// Does the work that is due until the engine is gone.
pub(super) async fn keep_time(inner: Weak<SchedulerCore>, changed: Arc<Notify>) {
    loop {
        let (clock, next) = {
            let Some(inner) = inner.upgrade() else { return };
            let state = inner.state.lock();
            if state.closed {
                return;
            }
            (inner.clock, state.timers.next_ns())
        };
        match next {
            None => changed.notified().await,
            Some(ns) => tokio::select! {
                () = changed.notified() => {}
                () = clock.sleep_until_ns(ns) => {}
            },
        }
        if let Some(inner) = inner.upgrade() {
            inner.do_due();
        }
    }
}

impl SchedulerCore {
    pub(super) fn do_due(self: &Arc<Self>) {
        let now_ns = self.clock.now_ns();
        loop {
            let due = self.state.lock().timers.take(now_ns);
            if matches!(due, Some(Due::DeliverEarly { .. } | Due::Late { .. } | Due::Expire { .. } | Due::Wake { .. }))
            {
                self.complete_ended();
            }
            match due {
                None => break,
                Some(Due::Look) => {}
                Some(Due::Flush { function }) => self.flush_limiter(function),
                Some(Due::Retry { function, calls }) => self.put_back_retried(&mut self.state.lock(), function, calls),
                Some(Due::Wake { batch, function, first }) => self.lane(function).woken((batch, function, first)),
                Some(Due::DeliverEarly { batch }) => self.deliver_late(batch, now_ns),
                Some(Due::Late { batch, function }) => self.end_late(batch, function, now_ns),
                Some(Due::Expire { batch, function, cause }) => {
                    let open = self.batch(batch);
                    if let Some(batch) = open {
                        self.end_open(&batch, function, &cause);
                    }
                }
            }
        }
        self.pump();
    }

    /// Records that a call has ended: functions of the same limiter may request permits again, and
    /// a timer is set to write the end.
    pub(super) fn released(&self, state: &mut SchedulerState, function: FunctionId) {
        let Some(limiter) = &self.limiters[function] else { return };
        for (pause, other) in state.limiter_pauses.iter_mut().zip(&self.limiters) {
            if other.as_ref().is_some_and(|other| Arc::ptr_eq(other, limiter)) {
                pause.released();
            }
        }
        self.flush_soon(state, function, limiter.has_unwritten());
    }

    fn flush_soon(&self, state: &mut SchedulerState, function: FunctionId, has_unwritten: bool) {
        let due_ns = self.clock.now_ns().saturating_add(FLUSH_NS);
        if state.limiter_pauses[function].schedule_flush(has_unwritten)
            && state.timers.set(due_ns, Due::Flush { function })
        {
            self.timers_changed.notify_one();
        }
    }

    fn flush_limiter(&self, function: FunctionId) {
        let Some(limiter) = &self.limiters[function] else { return };
        let flushed = limiter.flush(self.clock.now_ns());
        let mut state = self.state.lock();
        state.limiter_pauses[function].schedule_flush(false);
        self.flush_soon(&mut state, function, !flushed);
    }
}

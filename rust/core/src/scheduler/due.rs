//! What is done when its time comes: retries, deadlines, budgets, cuts, and what limits are owed (S-4).

use std::sync::{Arc, Weak};

use tokio::sync::Notify;

use crate::function::FunctionId;
use crate::scheduler::timers::Due;
use crate::scheduler::{Inner, State};

/// How soon a limit that processes share is told of calls that ended: those that end together are told together.
const SETTLE_NS: u64 = 2_000_000;

/// Does what is due, until the engine is gone (S-4).
pub(super) async fn keep_time(inner: Weak<Inner>, changed: Arc<Notify>) {
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

impl Inner {
    fn do_due(self: &Arc<Self>) {
        let now_ns = self.clock.now_ns();
        loop {
            let due = self.state.lock().timers.take(now_ns);
            if matches!(due, Some(Due::Cut { .. } | Due::Late { .. } | Due::Expire { .. })) {
                self.settle_ended();
            }
            match due {
                None => break,
                Some(Due::Look) => {}
                Some(Due::Settle { function }) => self.settle_limit(function),
                Some(Due::Retry { function, calls }) => self.state.lock().take_back(function, calls),
                Some(Due::Cut { batch, groups }) => {
                    let open = self.state.lock().works.get(&batch).map(|work| work.batch.clone());
                    if let Some(batch) = open {
                        self.cut(&batch, groups);
                    }
                }
                Some(Due::Late { batch, function, calls }) => self.end_late(batch, function, calls),
                Some(Due::Expire { batch, function, cause }) => {
                    let open = self.state.lock().works.get(&batch).map(|work| work.batch.clone());
                    if let Some(batch) = open {
                        self.end_open(&batch, function, &cause);
                    }
                }
            }
        }
        self.pump();
    }

    /// Lets others ask a limit of which a call has ended, and sees to it that how it did is written down.
    pub(super) fn released(&self, state: &mut State, function: FunctionId) {
        let Some(gate) = &self.gates[function] else { return };
        for (barred, other) in state.barred.iter_mut().zip(&self.gates) {
            if other.as_ref().is_some_and(|other| Arc::ptr_eq(other, gate)) {
                barred.released();
            }
        }
        self.settle_soon(state, function, gate.owes());
    }

    fn settle_soon(&self, state: &mut State, function: FunctionId, owes: bool) {
        let due_ns = self.clock.now_ns().saturating_add(SETTLE_NS);
        if state.barred[function].settle(owes) && state.timers.set(due_ns, Due::Settle { function }) {
            self.timers_changed.notify_one();
        }
    }

    fn settle_limit(&self, function: FunctionId) {
        let Some(gate) = &self.gates[function] else { return };
        let settled = gate.settle(self.clock.now_ns());
        let mut state = self.state.lock();
        state.barred[function].settle(false);
        self.settle_soon(&mut state, function, !settled);
    }
}

//! The end of a session: the worker is killed, sent away or gone; what it held ends or is given
//! back.

use std::sync::atomic::Ordering;
use std::time::Duration;

use guerdon_core::loss_ledger::LossProgress;
use guerdon_core::tracer::Moment;
use tokio::time::timeout;
use tracing::debug;

use super::{Session, SessionEnd, SessionEvent};
use crate::child::DYING;
use crate::exit_status::ExitStatus;
use crate::in_flight::Loss;
use crate::slots::SlotKind;
use crate::wire;
use crate::worker_socket::ReadMode;

/// Time that a worker has to close its functions, also if it gets the order amid work.
const FAREWELL: Duration = Duration::from_secs(1);
const FAREWELL_BUSY: Duration = Duration::from_millis(200);

impl Session {
    pub(super) async fn end(mut self, event: SessionEvent) -> SessionEnd {
        let was_ready = self.ready;
        debug!(pid = self.process.child.pid.as_raw_pid(), slot = self.slot.index, end = event.name(), "worker ends");
        if was_ready && self.slot.kind == SlotKind::Pool && matches!(event, SessionEvent::Dead | SessionEvent::Kill(_))
        {
            // The next one need not wait for the last breath of this one.
            self.successor.get_or_insert_with(|| self.shared.zygote.fork());
        }
        let successor = self.successor.take();
        match event {
            SessionEvent::Dead => {
                // Its socket may be open still, in one of its children: later time is not run time.
                let now_ns = self.shared.clock.now_ns();
                self.disconnected_ns.get_or_insert(now_ns);
                // Before it is reaped: a loader that has no other worker is ended then.
                let orphaned = self.process.child.parent.has_ended();
                self.drain();
                let (ending, stack) = self.process.reap().await;
                let loss = match self.standing(orphaned, ending).await {
                    Some(standing) => Loss::Zygote(standing),
                    None => Loss::Crashed(ending.to_string(), stack, ending.may_lack_memory()),
                };
                self.shared.moment(Moment::WorkerDied, &self.slot, || loss.why().to_owned());
                self.lose(&loss);
                let blameless = matches!(loss, Loss::Zygote(_)) && self.process.child.parent.is_loaded();
                self.process.close();
                if was_ready {
                    SessionEnd::Over(successor)
                } else if blameless {
                    SessionEnd::LostWithZygote
                } else {
                    SessionEnd::NeverReady { why: format!("a worker {ending} before it was ready"), died: true }
                }
            }
            SessionEvent::Kill(mut loss) => {
                if let Loss::Expired(claim, stack) | Loss::Stopped(claim, stack, _) = &mut loss {
                    *stack = self.last_stack(*claim).await;
                }
                self.shared.counts.kills.fetch_add(1, Ordering::Relaxed);
                self.shared.moment(Moment::WorkerKilled, &self.slot, || loss.why().to_owned());
                self.process.child.kill();
                // Not even SIGKILL ends a process that waits for a dead disk; its calls don't wait
                // with it.
                let _ = timeout(DYING, self.process.child.pidfd.ended()).await;
                self.drain();
                self.lose(&loss);
                self.process.shut_down(self.socket, Duration::ZERO);
                match loss {
                    Loss::Crashed(why, ..) if !was_ready => {
                        SessionEnd::NeverReady { why: format!("a worker {why}"), died: true }
                    }
                    _ => SessionEnd::Over(successor),
                }
            }
            SessionEvent::Retire { ask } => {
                if ask {
                    self.say_close();
                }
                drop(self.in_flight); // what it did not begin goes back
                self.process.shut_down(self.socket, FAREWELL);
                if self.makes_room { SessionEnd::MadeRoom } else { SessionEnd::Over(successor) }
            }
            SessionEvent::Closing => {
                // It may be about to end: a failure to tell it changes nothing.
                let _ = self.process.child.page.take_back(self.in_flight.lock().last_id());
                self.say_close();
                let patience = match (was_ready, self.in_flight.lock().is_empty()) {
                    (false, _) => Duration::ZERO,
                    (true, true) => FAREWELL,
                    (true, false) => FAREWELL_BUSY,
                };
                drop(self.in_flight);
                self.process.shut_down(self.socket, patience);
                SessionEnd::Closing
            }
        }
    }

    /// Returns whether the worker was killed with the process that forked it, and had that to
    /// itself.
    async fn standing(&self, orphaned: bool, ending: ExitStatus) -> Option<LossProgress> {
        // Any other end is its own.
        if !orphaned || !ending.may_be_killed() {
            return None;
        }
        let alone = match self.slot.kind {
            SlotKind::OwnZygote => true,
            SlotKind::OwnLoader => self.process.child.parent.was_lost_alone().await,
            SlotKind::Pool | SlotKind::Pinned | SlotKind::Alone => false,
        };
        Some(if alone { LossProgress::Apart } else { LossProgress::Next })
    }

    pub(super) fn say_close(&mut self) {
        self.socket.outgoing().extend_from_slice(&wire::close());
        self.flush();
    }

    /// Takes in the last messages of a dead worker.
    pub(super) fn drain(&mut self) {
        // Nothing more is done to the worker, whatever the messages.
        while matches!(self.receive(ReadMode::All), Ok(true)) {}
    }

    pub(super) fn lose(&mut self, loss: &Loss) {
        if let Loss::Stopped(_, stack, why) = loss {
            // it may have answered just before it was killed
            self.fail_front(why.clone(), stack.clone());
        }
        let page = self.page();
        let end_ns = self.disconnected_ns.unwrap_or_else(|| self.shared.clock.now_ns());
        let lost = self.in_flight.lock().lose(&page, loss, &self.shared.losses, end_ns);
        drop(lost); // without the lock
    }
}

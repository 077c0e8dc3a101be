//! The end of a session: the worker is killed, dismissed or gone; its calls end or are given back.

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

/// Time in which a worker must close its functions, even if the order comes during work.
const FAREWELL: Duration = Duration::from_secs(1);
const FAREWELL_BUSY: Duration = Duration::from_millis(200);

impl Session {
    pub(super) async fn end(mut self, event: SessionEvent) -> SessionEnd {
        let was_ready = self.ready;
        debug!(pid = self.process.child.pid.as_raw_pid(), slot = self.slot.index, end = event.name(), "worker ends");
        if was_ready && self.slot.kind == SlotKind::Pool && matches!(event, SessionEvent::Dead | SessionEvent::Kill(_))
        {
            // The successor's fork need not wait for the end of this worker.
            self.successor.get_or_insert_with(|| self.shared.zygote.fork());
        }
        let successor = self.successor.take();
        match event {
            SessionEvent::Dead => {
                // One of its children may keep its socket open: time after this is not run time.
                let now_ns = self.shared.clock.now_ns();
                self.disconnected_ns.get_or_insert(now_ns);
                // Checked before it is reaped, because the end of a dedicated loader follows.
                let orphaned = self.process.child.parent.has_ended();
                self.drain();
                let (ending, stack) = self.process.reap().await;
                let loss = match self.loss_progress(orphaned, ending).await {
                    Some(loss_progress) => Loss::Zygote(loss_progress),
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
                // SIGKILL can't end a process that waits for a dead disk; its calls must not wait
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
                    self.send_close();
                }
                drop(self.in_flight); // calls that it did not begin go back
                self.process.shut_down(self.socket, FAREWELL);
                if self.makes_room { SessionEnd::MadeRoom } else { SessionEnd::Over(successor) }
            }
            SessionEvent::Closing => {
                // A failure means that the worker is about to end, which has the same effect.
                let _ = self.process.child.page.take_back(self.in_flight.lock().last_id());
                self.send_close();
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

    /// Returns whether the worker was killed with the process that forked it, and if so, whether
    /// that process had no other worker.
    async fn loss_progress(&self, orphaned: bool, ending: ExitStatus) -> Option<LossProgress> {
        // The worker ended for another reason.
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

    pub(super) fn send_close(&mut self) {
        self.socket.outgoing().extend_from_slice(&wire::close());
        self.flush();
    }

    /// Processes the last messages of a dead worker.
    pub(super) fn drain(&mut self) {
        // No action on the worker follows from these messages.
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

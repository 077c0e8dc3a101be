//! A check of a busy worker: its running call, and the action on it.

use guerdon_core::clock::nanos;
use rustix::process::Signal;
use tracing::debug;

use super::pending::PendingReturn;
use super::{Session, SessionEvent};
use crate::call_watch::{Action, TICK};
use crate::in_flight::Loss;
use crate::output_meter::OutputAction;
use crate::shared_page::PageSnapshot;
use crate::wire::Message;
use crate::worker_socket::ReadMode;

impl Session {
    /// Checks the running call of the worker. Returns the time of the next check.
    pub(super) fn check(&mut self) -> Result<u64, SessionEvent> {
        if self.receive(ReadMode::All)? {
            return Err(SessionEvent::Retire { ask: false });
        }
        let now_ns = self.shared.clock.now_ns();
        if self.in_flight.lock().is_empty() {
            return Ok(now_ns + nanos(TICK));
        }
        let Ok(page) = self.process.child.page.read() else {
            return Err(SessionEvent::kill("was killed: the memory shared with it could not be read"));
        };
        self.in_flight.lock().complete_before(self.last_claim, &page, now_ns);
        self.last_claim = page.progress();
        let running_claim = self.in_flight.lock().running_claim(&page);
        if let Some(why) = self.output_meter.over(|| self.process.printed())
            && let Some(hand) = running_claim
        {
            match self.output_meter.action(now_ns) {
                OutputAction::Tell => self.fire(hand.claim),
                OutputAction::Wait => {}
                OutputAction::Kill => return Err(SessionEvent::Kill(Loss::Stopped(hand.claim, None, why))),
            }
        }
        let check = self.watch.check(now_ns, running_claim);
        match (check.action, running_claim) {
            (Some(Action::Fire), Some(hand)) => self.fire(hand.claim),
            (Some(Action::AskStack), Some(hand)) if hand.open => self.stack_answer = Some(self.ask(hand.claim)),
            (Some(Action::Kill), Some(hand)) => {
                return Err(SessionEvent::Kill(Loss::Expired(hand.claim, None)));
            }
            (Some(Action::Disown), _) => {
                return Err(SessionEvent::kill("was killed: it went back to calls that had ended"));
            }
            (Some(Action::Kill), None) => {
                return Err(self.silent(&page, "was killed: it did not start its calls"));
            }
            (None, None) if self.watch.is_late(now_ns) => {
                if self.in_flight.lock().has_ended(&page) {
                    return Err(self.silent(&page, "was killed: it did not report the end of its calls"));
                }
                if self.process.child.is_stopped() {
                    return Err(SessionEvent::kill("was stopped by a signal"));
                }
            }
            _ => {}
        }
        self.take_back(&page, running_claim.map(|hand| hand.claim), check.slow, check.age_ns, now_ns);
        Ok(check.wake_ns)
    }

    fn silent(&mut self, page: &PageSnapshot, why: &str) -> SessionEvent {
        self.in_flight.lock().blame_first(page, why);
        SessionEvent::kill(why)
    }

    /// Makes the worker end its claim by an exception.
    pub(super) fn fire(&self, claim: u64) {
        debug!(pid = self.process.child.pid.as_raw_pid(), "timeout signal");
        // If either fails the process is ending; the kill comes in any case.
        if self.process.child.page.aim(claim).is_ok() {
            let _ = self.process.child.pidfd.signal(Signal::URG);
        }
    }

    pub(super) fn take_back(&mut self, page: &PageSnapshot, claim: Option<u64>, slow: bool, age_ns: u64, now_ns: u64) {
        match &mut self.taking {
            None => {
                let held_up = claim.is_some_and(|claim| self.in_flight.lock().is_held_up(claim, slow));
                if !slow && !held_up {
                    return;
                }
                self.slot.set_stalled(true);
                self.in_flight.lock().note_slow();
                // If no call is behind the slow one, none is taken back yet, and none may be sent
                // behind it either.
                let taken = !held_up || self.process.child.page.take_back(self.in_flight.lock().last_id()).is_ok();
                self.taking = Some(PendingReturn { asked_ns: now_ns, collected: !held_up || !taken });
            }
            Some(taking) if !taking.collected && now_ns.saturating_sub(taking.asked_ns) >= nanos(TICK) / 2 => {
                taking.collected = true;
                self.in_flight.lock().take_back(page, age_ns);
            }
            Some(_) => {}
        }
    }

    /// Fails a call because of its output, or restarts the count for a call that begins.
    pub(super) fn judge_output(&mut self, message: &Message) {
        let printed = || self.process.printed();
        match message {
            Message::Begun { frame, prepared } => {
                self.output_meter.begun(*prepared, printed);
                // A worker that gets no answer goes on after a while.
                let _ = self.process.child.page.counted(*frame);
            }
            Message::Cells { .. } | Message::Done { ran: 1.., .. } => {
                if let Some(why) = self.output_meter.over(printed) {
                    self.fail_front(why, None);
                }
            }
            Message::Fail { text, expired: true, .. } if self.output_meter.signalled() => {
                let why = self.output_meter.over(printed).unwrap_or_default();
                self.fail_front(why, text.traceback.clone());
            }
            _ => {}
        }
    }

    pub(super) fn fail_front(&mut self, why: String, traceback: Option<String>) {
        let page = self.page();
        self.in_flight.lock().fail_front(why, traceback, &page, self.shared.clock.now_ns());
    }

    pub(super) fn page(&self) -> PageSnapshot {
        self.process.child.page.read().unwrap_or_else(|_| PageSnapshot::empty())
    }
}

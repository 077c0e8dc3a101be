//! A look at a busy worker: what it has in hand, and what has to be done about it.

use std::sync::atomic::Ordering;

use rustix::process::Signal;

use super::{Session, Turn};
use crate::in_flight::Loss;
use crate::link::Read;
use crate::output_meter;
use crate::shared_page::Snapshot;
use crate::watchdog::{Order, TICK};
use crate::wire::Message;
use guerdon_core::clock::nanos;

/// Frames are being taken back.
pub(super) struct Taking {
    asked_ns: u64,
    collected: bool,
}

impl Session {
    /// Looks at what the worker has in hand; when to look again.
    pub(super) fn look(&mut self) -> Result<u64, Turn> {
        if self.receive(Read::All)? {
            return Err(Turn::Leave { ask: false });
        }
        let now_ns = self.shared.clock.now_ns();
        if self.flight.is_empty() {
            return Ok(now_ns + nanos(TICK));
        }
        let Ok(page) = self.body.child.page.read() else {
            return Err(Turn::kill("has an unreadable page"));
        };
        self.flight.settle_before(self.last_claim, &page, now_ns);
        self.last_claim = page.progress();
        let in_hand = self.flight.in_hand(&page);
        if let Some(why) = self.meter.over(|| self.body.printed())
            && let Some(hand) = in_hand
        {
            match self.meter.order(now_ns) {
                output_meter::Order::Tell => self.fire(hand.claim),
                output_meter::Order::Wait => {}
                output_meter::Order::Kill => return Err(Turn::Kill(Loss::Stopped(hand.claim, None, why))),
            }
        }
        let look = self.watch.look(now_ns, in_hand);
        match (look.order, in_hand) {
            (Some(Order::Fire), Some(hand)) => self.fire(hand.claim),
            (Some(Order::Ask), Some(hand)) if hand.open => self.asked = Some(self.ask(hand.claim)),
            (Some(Order::Kill), Some(hand)) => {
                return Err(Turn::Kill(Loss::Expired(hand.claim, None)));
            }
            (Some(Order::Disown), _) => {
                return Err(Turn::kill("was ended: it claimed calls that it had left already"));
            }
            (Some(Order::Kill), None) => {
                return Err(self.silent(&page, "was ended: it did not start its calls"));
            }
            (None, None) if self.watch.is_late(now_ns) => {
                if self.flight.has_ended(&page) {
                    return Err(self.silent(&page, "was ended: it did not say that its calls had ended"));
                }
                if self.body.child.is_stopped() {
                    return Err(Turn::kill("was stopped by a signal"));
                }
            }
            _ => {}
        }
        self.take_back(&page, in_hand.map(|hand| hand.claim), look.slow, look.age_ns, now_ns);
        Ok(look.wake_ns)
    }

    fn silent(&mut self, page: &Snapshot, why: &str) -> Turn {
        self.flight.blame_first(page, why);
        Turn::kill(why)
    }

    /// Has the worker end what it claims by an exception.
    pub(super) fn fire(&self, claim: u64) {
        // If either fails the process is ending; the kill is due in any case.
        if self.body.child.page.aim(claim).is_ok() {
            let _ = self.body.child.pidfd.signal(Signal::URG);
        }
    }

    pub(super) fn take_back(&mut self, page: &Snapshot, claim: Option<u64>, slow: bool, age_ns: u64, now_ns: u64) {
        match &mut self.taking {
            None => {
                let held_up = claim.is_some_and(|claim| self.flight.is_held_up(claim, slow));
                if !slow && !held_up {
                    return;
                }
                self.slot.stalled.store(true, Ordering::Release);
                // With nothing behind the slow call there is nothing to take back yet, but nothing may be put behind it either.
                let taken = !held_up || self.body.child.page.take_back(self.flight.last_id()).is_ok();
                self.taking = Some(Taking { asked_ns: now_ns, collected: !held_up || !taken });
            }
            Some(taking) if !taking.collected && now_ns.saturating_sub(taking.asked_ns) >= nanos(TICK) / 2 => {
                taking.collected = true;
                self.flight.take_back(page, age_ns);
            }
            Some(_) => {}
        }
    }

    /// Fails a call that ends, or begins again to count one that begins, for what it printed.
    pub(super) fn judge_output(&mut self, message: &Message) {
        let printed = || self.body.printed();
        match message {
            Message::Begun { frame, prepared } => {
                self.meter.begun(*prepared, printed);
                // A worker that is not told goes on after a while.
                let _ = self.body.child.page.counted(*frame);
            }
            Message::Cells { .. } | Message::Done { ran: 1.., .. } => {
                if let Some(why) = self.meter.over(printed) {
                    self.fail_front(why, None);
                }
            }
            Message::Fail { text, expired: true, .. } if self.meter.told() => {
                let why = self.meter.over(printed).unwrap_or_default();
                self.fail_front(why, text.traceback.clone());
            }
            _ => {}
        }
    }

    pub(super) fn fail_front(&mut self, why: String, traceback: Option<String>) {
        let page = self.page();
        self.flight.fail_front(why, traceback, &page, self.shared.clock.now_ns());
    }

    pub(super) fn page(&self) -> Snapshot {
        self.body.child.page.read().unwrap_or_else(|_| Snapshot::empty())
    }
}

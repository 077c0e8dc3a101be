//! A cap on the cost of requests: each is admitted before it is sent, and reports its cost when it
//! has ended.
//!
//! - A refused request fails at once, because waiting makes no room. Before the first reported
//!   cost, a request waits for those in flight.
//! - Costs that could not be written, because another process had the file, are written with the
//!   next use.
//! - A file that can't be used refuses requests with a reason, because the cap is a hard one.

use std::io;
use std::path::PathBuf;

use serde::Deserialize;

use super::file::SpendingFile;
use super::ledger::{EndedCosts, Ledger, Reserve, Room};
use crate::settings::path;
use crate::sync::{AtomicU32, Mutex, Ordering};

/// A cap as it was set.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Cap {
    pub max_cost: f64,
    /// Owner of the cap, for messages: "of the dispatcher".
    pub whose: String,
    /// Present if processes share the cap.
    pub shared: Option<SharedCap>,
}

/// A cap that processes share.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SharedCap {
    #[serde(deserialize_with = "path")]
    pub path: PathBuf,
    /// True if the amount stays when no process that shares the cap lives.
    pub kept: bool,
}

/// Cost of an ended request.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Cost {
    Known(f64),
    /// The request was not made, or was refused.
    Free,
    /// The cost was not reported; this is its highest possible value.
    Unknown {
        most: f64,
    },
}

/// Decision on a request.
#[derive(Debug, PartialEq)]
pub enum Admission {
    /// The request may go, and is in flight until `complete`.
    Yes,
    /// The request must fail, for this reason.
    Refused(String),
    /// The request has to try again in a moment: another process has the file, or no cost was
    /// reported yet.
    Busy,
}

/// See the module.
#[derive(Debug)]
pub struct Spending {
    cap: Cap,
    /// 1 once no more requests may go, as of the last use. Written under the lock of `state`.
    exhausted: AtomicU32,
    state: Mutex<SpendingState>,
}

#[derive(Debug)]
struct SpendingState {
    store: SpendingStore,
    /// Requests of this engine.
    in_flight: u64,
    /// Costs that are not written yet.
    unwritten: EndedCosts,
    /// The clock at the last use.
    used_ns: u64,
}

#[derive(Debug)]
enum SpendingStore {
    Own(Ledger),
    Shared(Box<SpendingFile>),
}

impl Spending {
    #[must_use]
    pub fn new(cap: Cap) -> Self {
        let store = match &cap.shared {
            Some(SharedCap { path, kept }) => SpendingStore::Shared(Box::new(SpendingFile::new(path, *kept))),
            None => SpendingStore::Own(Ledger::default()),
        };
        let state = SpendingState { store, in_flight: 0, unwritten: EndedCosts::default(), used_ns: 0 };
        Self { cap, exhausted: AtomicU32::new(0), state: Mutex::new(state) }
    }

    /// Decides on one request.
    pub fn admit(&self, now_ns: u64, asked: &Reserve) -> Admission {
        let max_cost = self.cap.max_cost;
        let mut state = self.state.lock();
        let looked = state.with(now_ns, |ledger, in_flight, own| {
            let room = ledger.room(max_cost, in_flight, asked);
            *own += u64::from(room == Room::Free);
            (room, *ledger, in_flight)
        });
        match looked {
            Ok(None) => Admission::Busy,
            Ok(Some((room, ledger, in_flight))) => {
                self.note(&ledger);
                match room {
                    Room::Free => Admission::Yes,
                    Room::Later => Admission::Busy,
                    Room::Full => Admission::Refused(self.reason(&ledger, in_flight, asked.most)),
                }
            }
            Err(error) => Admission::Refused(self.unusable(&error)),
        }
    }

    /// Records the cost of a request that has ended.
    pub fn complete(&self, now_ns: u64, cost: Cost) {
        let mut state = self.state.lock();
        state.in_flight = state.in_flight.saturating_sub(1);
        let ended = &mut state.unwritten;
        match cost {
            Cost::Free => {}
            Cost::Known(cost) if cost.is_finite() && cost >= 0.0 => {
                (ended.spent, ended.known) = (ended.spent + cost, ended.known + 1);
                ended.largest = ended.largest.max(cost);
            }
            Cost::Known(_) => ended.unknown += 1,
            Cost::Unknown { most } => (ended.most, ended.unknown) = (ended.most + most, ended.unknown + 1),
        }
        // An unusable file is reported at the next `admit`.
        if let Ok(Some(ledger)) = state.with(now_ns, |ledger, _, _| *ledger) {
            self.note(&ledger);
        }
    }

    /// Returns the reason why no more requests may go, as of the last use, so that calls fail at
    /// once rather than wait.
    #[must_use]
    pub fn exhausted(&self, now_ns: u64) -> Option<String> {
        if self.exhausted.load(Ordering::Acquire) == 0 {
            return None;
        }
        let mut state = self.state.lock();
        let (ledger, in_flight) = state.with(now_ns, |ledger, in_flight, _| (*ledger, in_flight)).ok().flatten()?;
        // Other processes may have completed requests since then, which made room.
        self.note(&ledger);
        ledger.is_exhausted(self.cap.max_cost).then(|| self.reason(&ledger, in_flight, 0.0))
    }

    fn note(&self, ledger: &Ledger) {
        self.exhausted.store(u32::from(ledger.is_exhausted(self.cap.max_cost)), Ordering::Release);
    }

    fn reason(&self, ledger: &Ledger, in_flight: u64, most: f64) -> String {
        let Cap { max_cost, whose, .. } = &self.cap;
        let (Ledger { spent, known, guessed, unknown, .. }, estimate) = (ledger, ledger.estimate(most));
        let about = match unknown {
            0 => String::new(),
            _ => format!(" and about {guessed:.6} on {unknown} of unknown cost"),
        };
        let more = if in_flight == 0 { String::new() } else { format!(", {in_flight} more in flight") };
        format!(
            "max_cost={max_cost} {whose} is reached: {spent:.6} spent on {known} requests{about}{more}, about {estimate:.6} each"
        )
    }

    fn unusable(&self, error: &io::Error) -> String {
        let path = self.cap.shared.as_ref().map_or_else(String::new, |shared| shared.path.display().to_string());
        format!("what was spent under max_cost={} is not known: {path}: {error}", self.cap.max_cost)
    }
}

impl SpendingState {
    /// Calls `look` with the amount spent, the requests in flight, and this engine's part of those,
    /// which may be changed. Ended requests are written first. `None` if the file is locked.
    fn with<R>(&mut self, now_ns: u64, look: impl FnOnce(&Ledger, u64, &mut u64) -> R) -> io::Result<Option<R>> {
        let Self { store, in_flight, unwritten, used_ns } = self;
        *used_ns = now_ns;
        match store {
            SpendingStore::Own(ledger) => {
                ledger.add(std::mem::take(unwritten));
                Ok(Some(look(ledger, *in_flight, in_flight)))
            }
            SpendingStore::Shared(file) => file.with(now_ns, |locked| {
                locked.ledger.add(std::mem::take(unwritten));
                locked.set_in_flight(*in_flight);
                let done = look(&locked.ledger, locked.in_flight(), in_flight);
                locked.set_in_flight(*in_flight);
                done
            }),
        }
    }
}

impl Drop for Spending {
    fn drop(&mut self) {
        let mut state = self.state.lock();
        state.in_flight = 0;
        let now_ns = state.used_ns;
        let _ = state.with(now_ns, |_, _, _| ());
        if let SpendingStore::Shared(file) = &mut state.store {
            file.leave(now_ns);
        }
    }
}

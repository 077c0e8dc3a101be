//! State that the sessions of an agent share.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use guerdon_core::clock::Clock;
use guerdon_core::frame_runner::{FrameEvent, FrameListener, FrameRunner};
use guerdon_core::in_flight::InFlight;
use guerdon_core::lane::Lane;
use guerdon_core::outcome::Times;
use guerdon_core::snapshots::AgentStats;
use parking_lot::RwLock;

use crate::agent_output::AgentOutput;
use crate::backlog::{Backlog, WORTH_NS};
use crate::link::Link;
use crate::wire::{Digest, ToDriver};

/// Configuration of an agent.
pub struct AgentConfig {
    /// Digest of its functions.
    pub digest: Digest,
    /// Number of its workers.
    pub slots: usize,
    /// Reader of its counters.
    pub stats: Box<dyn Fn() -> AgentStats + Send + Sync>,
}

/// Makes snapshots of the lanes' calls, and may wait up to the given time.
pub type Inspector = Box<dyn Fn(&[Arc<dyn Lane>], Duration) -> Vec<InFlight> + Send + Sync>;

/// Link to a driver, and its frames here.
struct SessionLink {
    link: Arc<Link>,
    /// Frames that have not ended.
    frames: AtomicUsize,
    /// Total run time of calls since a frame last ended.
    ran_ns: AtomicU64,
    /// Run time of ended frames since the last immediate report.
    unreported_ns: AtomicU64,
    backlog: Backlog,
}

impl SessionLink {
    fn ran(&self, times: Times) {
        self.ran_ns.fetch_add(times.run_ns, Ordering::Relaxed);
    }

    /// Records the end of a frame. Returns whether the driver must be notified at once: a worker
    /// has no frame any more, or may soon have none and the frame is worth a separate message.
    fn ended(&self, workers: usize) -> bool {
        let ran_ns = self.ran_ns.swap(0, Ordering::Relaxed);
        if ran_ns > 0 {
            self.backlog.frame_ran(ran_ns);
        }
        let unreported_ns = self.unreported_ns.fetch_add(ran_ns, Ordering::Relaxed).saturating_add(ran_ns);
        let frames = self.frames.fetch_sub(1, Ordering::AcqRel);
        let worth = ran_ns == 0 || unreported_ns >= WORTH_NS;
        let at_once = frames <= workers || (worth && frames <= self.backlog.few(workers));
        if at_once {
            self.unreported_ns.store(0, Ordering::Relaxed);
        }
        at_once
    }
}

/// The links of the sessions, as the listener of their frames.
pub(crate) struct Sessions {
    workers: usize,
    /// Written as drivers come and go.
    links: RwLock<BTreeMap<u64, SessionLink>>,
}

impl FrameListener for Sessions {
    fn tell(&self, session: u64, frame: u64, event: FrameEvent) {
        let links = self.links.read();
        let Some(one) = links.get(&session) else { return };
        let hurries = match &event {
            FrameEvent::Ended => one.ended(self.workers),
            // A worker of another node waits for them.
            FrameEvent::GivenBack(_) => true,
            FrameEvent::Cells(cells) => {
                cells.iter().for_each(|cell| one.ran(cell.times));
                false
            }
            FrameEvent::Call { times, .. } | FrameEvent::Failed { times, .. } => {
                one.ran(*times);
                false
            }
            _ => false,
        };
        let write = |out: &mut Vec<u8>| ToDriver::Frame(frame, event).write(out);
        if hurries { one.link.write(write) } else { one.link.write_soon(write) }
    }
}

impl Sessions {
    /// Makes the state of an agent with `workers` workers.
    pub(crate) fn new(workers: usize) -> Self {
        Self { workers, links: RwLock::default() }
    }

    pub(crate) fn add(&self, session: u64, link: Arc<Link>) {
        let began = SessionLink {
            link,
            frames: AtomicUsize::new(0),
            ran_ns: AtomicU64::new(0),
            unreported_ns: AtomicU64::new(0),
            backlog: Backlog::default(),
        };
        self.links.write().insert(session, began);
    }

    pub(crate) fn remove(&self, session: u64) {
        self.links.write().remove(&session);
    }

    /// Records that a frame has come, whose end will be reported once.
    pub(crate) fn frame_came(&self, session: u64) {
        if let Some(one) = self.links.read().get(&session) {
            one.frames.fetch_add(1, Ordering::AcqRel);
        }
    }

    /// Returns the links, that of the oldest session first.
    pub(crate) fn all(&self) -> Vec<Arc<Link>> {
        self.links.read().values().map(|one| one.link.clone()).collect()
    }
}

pub(crate) struct AgentState {
    pub clock: Clock,
    pub config: AgentConfig,
    pub runner: FrameRunner,
    pub sessions: Arc<Sessions>,
    pub output: AgentOutput,
    /// Written once.
    pub inspector: OnceLock<Inspector>,
}

#[cfg(test)]
mod tests {
    use guerdon_core::frame_runner::EndedCell;
    use guerdon_core::outcome::Cell;

    use super::*;
    use crate::link::{OutgoingBytes, Pace};

    #[test]
    fn short_frames_are_reported_together() {
        let (sessions, link) = (Sessions::new(1), Link::new("driver"));
        sessions.add(1, link.clone());
        (0..10).for_each(|_| sessions.frame_came(1));
        // Frames of 0.3 ms each: some are reported as 1 ms is over, and the last at once.
        let reports = |frame| {
            let times = Times { started_ns: 1, run_ns: 300_000 };
            sessions.tell(1, frame, FrameEvent::Cells(vec![EndedCell { call: 0, cell: Cell::Value(1.0), times }]));
            sessions.tell(1, frame, FrameEvent::Ended);
            let never = Pace { linger: Duration::MAX, enough: usize::MAX };
            link.take(Duration::ZERO, never) != OutgoingBytes::Empty
        };
        let at_once: Vec<u64> = (0..10).filter(|frame| reports(*frame)).collect();
        assert_eq!(at_once, [3, 7, 9]);
    }

    #[test]
    fn ends_are_reported_at_once_if_workers_may_run_dry() {
        let (sessions, link) = (Sessions::new(1), Link::new("driver"));
        sessions.add(1, link.clone());
        (0..3).for_each(|_| sessions.frame_came(1));
        let waits = || {
            let never = Pace { linger: Duration::MAX, enough: usize::MAX };
            link.take(Duration::ZERO, never) == OutgoingBytes::Empty
        };
        sessions.tell(1, 1, FrameEvent::Begun);
        sessions.tell(1, 1, FrameEvent::Ended);
        assert!(waits());
        sessions.tell(1, 2, FrameEvent::Ended);
        assert!(!waits());
        sessions.tell(1, 3, FrameEvent::GivenBack(vec![0]));
        assert!(!waits());
        sessions.tell(1, 3, FrameEvent::Ended);
        assert!(!waits());
    }
}

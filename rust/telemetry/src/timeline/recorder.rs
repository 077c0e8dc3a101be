//! The recorder of one dispatcher: a sink for the engine's events, and the thread that writes them.
//!
//! - The thread reads the counters every few milliseconds while batches are open, and writes a few
//!   times a second. A kill loses only calls that ended since the last write.
//! - A failure of the disk ends the trace, is reported once, and ends nothing else.

use std::collections::HashSet;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use guerdon_core::clock::Clock;
use guerdon_core::in_flight::InFlight;
use guerdon_core::observer::Telemetry;
use guerdon_core::scheduler::Loads;
use guerdon_core::settings::{path, seconds};
use guerdon_core::tracer::TraceEvent;
use rustix::time::ClockId;
use serde::Deserialize;

use crate::background_work::BackgroundWork;
use crate::queue::{Bounds, Queue};
use crate::timeline::builder::TimelineBuilder;
use crate::timeline::encoder::{body, head, now_ns};
use crate::timeline::item::{Item, TrackId};
use crate::timeline::ring::Ring;

/// Intervals between two readings of the counters, while batches are open and while none is.
const BUSY_INTERVAL: Duration = Duration::from_millis(5);
const IDLE_INTERVAL: Duration = Duration::from_millis(250);
/// The most events that wait, and the number of events that ends an interval.
const MOST_EVENTS: usize = 1 << 16;
const MANY_EVENTS: usize = 1 << 12;
/// Interval between two writes.
const WRITE_INTERVAL: Duration = Duration::from_millis(250);

/// Configuration of a timeline.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TraceConfig {
    #[serde(deserialize_with = "path")]
    pub path: PathBuf,
    /// The size of the ring.
    pub bytes: u64,
    /// Run time below which calls are not reported one by one.
    #[serde(deserialize_with = "seconds")]
    pub shortest: Duration,
    /// The process's name on the timeline.
    pub process: String,
    /// Names and lanes.
    #[serde(skip)]
    pub functions: Vec<(String, String)>,
}

/// Called once with the file, and the reason why nothing more is written to it.
pub type TroubleListener = Box<dyn Fn(&Path, &str) + Send>;

/// Readers of the engine for the writing thread.
pub struct RecorderSources {
    /// Returns the numbers of waiting and running calls; `None` once the engine is gone.
    pub loads: Box<dyn Fn() -> Option<Loads> + Send>,
    /// Returns the calls that run at this time, without those of workers.
    pub open_calls: Box<dyn Fn(u64) -> Vec<InFlight> + Send>,
    pub on_trouble: TroubleListener,
}

/// See the module.
pub struct Recorder {
    /// Ended by `close`, and by the writing thread if the disk fails.
    queue: Arc<Queue<TraceEvent>>,
    shortest_ns: u64,
    path: PathBuf,
    ended: BackgroundWork,
}

impl Recorder {
    /// Makes the file and starts to write. Returns an error if the file can't be made.
    pub fn start(config: &TraceConfig, clock: Clock, sources: RecorderSources) -> io::Result<Self> {
        let (ring, path) = Ring::create(&config.path, config.bytes)?;
        let shortest_ns = u64::try_from(config.shortest.as_nanos()).unwrap_or(u64::MAX);
        let queue = Arc::new(Queue::new(Bounds { rows: MOST_EVENTS, bytes: usize::MAX }));
        let offset_ns = now_ns(ClockId::Boottime).saturating_sub(now_ns(ClockId::Monotonic));
        let pid = std::process::id();
        let salt = now_ns(ClockId::Realtime) ^ u64::from(pid).rotate_left(48);
        let timeline = TimelineBuilder::new((pid, &config.process), &config.functions, offset_ns, salt);
        let (described, sequence) = (HashSet::new(), 0);
        let writer = RecorderThread {
            path: path.clone(),
            ring,
            timeline,
            queue: queue.clone(),
            clock,
            sources,
            described,
            sequence,
        };
        let ended = BackgroundWork::of_thread("guerdon-trace", move || writer.run())?;
        Ok(Self { queue, shortest_ns, path, ended })
    }

    /// Returns the file's name, which differs from the configured one if that is in use.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Returns the number of events that were dropped.
    #[must_use]
    pub fn dropped(&self) -> u64 {
        self.queue.dropped()
    }

    /// Writes the waiting events, for at most `within`, and ends.
    pub fn close(&self, within: Duration) {
        self.queue.end();
        self.ended.wait(within);
    }
}

impl Drop for Recorder {
    fn drop(&mut self) {
        self.queue.end();
    }
}

impl Telemetry for Recorder {
    fn shortest_ns(&self) -> Option<u64> {
        Some(self.shortest_ns)
    }

    fn record(&self, event: TraceEvent) {
        if self.queue.has_ended() {
            return;
        }
        let wakes = matches!(event, TraceEvent::BatchSubmitted { .. });
        self.queue.push(event, 1, 0);
        if wakes {
            self.queue.wake();
        }
    }
}

/// State of the thread.
struct RecorderThread {
    path: PathBuf,
    ring: Ring,
    timeline: TimelineBuilder,
    queue: Arc<Queue<TraceEvent>>,
    clock: Clock,
    sources: RecorderSources,
    /// Tracks that the current slot describes.
    described: HashSet<TrackId>,
    sequence: u32,
}

impl RecorderThread {
    fn run(mut self) {
        self.queue.set_consumer();
        let mut written = Instant::now();
        let mut before_ns = 0;
        loop {
            let closed = self.queue.has_ended();
            let now_ns = self.clock.now_ns();
            let loads = (self.sources.loads)();
            let open = loads.as_ref().is_some_and(|loads| loads.batches > 0);
            if let Some(loads) = &loads {
                self.timeline.loads(loads, now_ns);
            }
            let done = match self.take(now_ns) {
                Ok(()) if closed || written.elapsed() >= WRITE_INTERVAL => {
                    // The last calls of a batch that was done at the previous write have come.
                    self.timeline.finish_batches(if closed { u64::MAX } else { before_ns });
                    (before_ns, written) = (now_ns, Instant::now());
                    self.write(closed)
                }
                other => other,
            };
            if let Err(error) = done {
                self.queue.end();
                (self.sources.on_trouble)(&self.path, &error.to_string());
                return;
            }
            if closed {
                return;
            }
            // A batch is reported shortly before the scheduler counts it.
            let looks = open || self.timeline.has_open_batches();
            self.queue.wait_once(MANY_EVENTS, Some(Instant::now() + if looks { BUSY_INTERVAL } else { IDLE_INTERVAL }));
        }
    }

    /// Adds the waiting events to the timeline.
    fn take(&mut self, now_ns: u64) -> io::Result<()> {
        let most = self.ring.slot_bytes() / 4;
        for event in self.queue.take(MOST_EVENTS) {
            self.timeline.take(event);
            if self.timeline.bytes > most {
                let items = self.timeline.take_items();
                self.put(items, false)?;
            }
        }
        self.timeline.dropped(self.queue.dropped(), now_ns);
        Ok(())
    }

    fn write(&mut self, closed: bool) -> io::Result<()> {
        let items = self.timeline.take_items();
        self.put(items, false)?;
        if closed {
            return self.ring.close();
        }
        let now_ns = self.clock.now_ns();
        let open = self.timeline.open_items((self.sources.open_calls)(now_ns), now_ns);
        self.put(open, true)
    }

    fn put(&mut self, items: Vec<Item>, provisional: bool) -> io::Result<()> {
        if items.is_empty() {
            return self.ring.remove_provisional();
        }
        self.sequence += 1;
        let used: Vec<TrackId> = items.iter().map(|item| item.track).collect();
        let body = body(items, self.sequence);
        let mut described = self.described.clone();
        let mut segment = head(&self.timeline.tracks, &used, &mut described, self.sequence);
        if !self.ring.has_room(segment.len() + body.len()) {
            if provisional {
                return self.ring.remove_provisional();
            }
            self.ring.next_slot()?;
            described.clear();
            segment = head(&self.timeline.tracks, &used, &mut described, self.sequence);
            if !self.ring.has_room(segment.len() + body.len()) {
                self.described.clear();
                self.timeline.lost(used.len() as u64);
                return Ok(());
            }
        }
        if !provisional {
            self.described = described;
        }
        segment.extend_from_slice(&body);
        self.ring.append(segment, provisional)
    }
}

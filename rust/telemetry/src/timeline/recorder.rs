//! The recorder of one dispatcher: takes the engine's reports, and a separate thread that writes
//! them.
//!
//! - The thread looks at the counters every few milliseconds while batches are open, and writes a
//!   few times a second: what ended before a kill by more than that is in the file.
//! - A failure of the disk ends the trace, is reported once, and ends nothing else.

use std::collections::HashSet;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use guerdon_core::clock::Clock;
use guerdon_core::in_flight::InFlight;
use guerdon_core::observer::Telemetry;
use guerdon_core::scheduler::Loads;
use guerdon_core::settings::{path, seconds};
use guerdon_core::tracer::TraceEvent;
use parking_lot::Mutex;
use rustix::time::ClockId;
use serde::Deserialize;

use crate::queue::{Bounds, Queue};
use crate::timeline::builder::TimelineBuilder;
use crate::timeline::encoder::{body, head, now_ns};
use crate::timeline::item::{Item, TrackId};
use crate::timeline::ring::Ring;

/// Between two looks at the counters, while batches are open and while none is.
const LOOK: Duration = Duration::from_millis(5);
const REST: Duration = Duration::from_millis(250);
/// Events that wait at most, and with how many the thread looks at once.
const MOST_EVENTS: usize = 1 << 16;
const MANY_EVENTS: usize = 1 << 12;
/// Between two writes.
const WRITE: Duration = Duration::from_millis(250);

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

/// Told the file, and why nothing more is written to it: once.
pub type TroubleListener = Box<dyn Fn(&Path, &str) + Send>;

/// Readers of the engine for the writing thread.
pub struct RecorderSources {
    /// Reader of waiting and running calls; `None` once the engine is gone.
    pub loads: Box<dyn Fn() -> Option<Loads> + Send>,
    /// Calls that run at this time, those of workers aside.
    pub open_calls: Box<dyn Fn(u64) -> Vec<InFlight> + Send>,
    pub on_trouble: TroubleListener,
}

struct RecorderShared {
    queue: Queue<TraceEvent>,
    shortest_ns: u64,
    closed: AtomicBool,
}

/// See the module.
pub struct Recorder {
    shared: Arc<RecorderShared>,
    path: PathBuf,
    /// The writing thread. Taken by `close`.
    thread: Mutex<Option<JoinHandle<()>>>,
}

impl Recorder {
    /// Makes the file, which says at once whether that can be, and starts to write.
    pub fn start(config: &TraceConfig, clock: Clock, sources: RecorderSources) -> io::Result<Self> {
        let (ring, path) = Ring::create(&config.path, config.bytes)?;
        let shortest_ns = u64::try_from(config.shortest.as_nanos()).unwrap_or(u64::MAX);
        let queue = Queue::new(Bounds { rows: MOST_EVENTS, bytes: usize::MAX });
        let shared = Arc::new(RecorderShared { queue, shortest_ns, closed: AtomicBool::new(false) });
        let writer = RecorderThread::new(config, path.clone(), ring, shared.clone(), clock, sources);
        let thread = std::thread::Builder::new().name("guerdon-trace".to_owned()).spawn(move || writer.run())?;
        Ok(Self { shared, path, thread: Mutex::new(Some(thread)) })
    }

    /// The file's name, which is another than was asked for where that is in use.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Returns the number of events without room.
    #[must_use]
    pub fn dropped(&self) -> u64 {
        self.shared.queue.dropped()
    }

    /// Writes the rest, for at most `within`, and ends.
    pub fn close(&self, within: Duration) {
        self.shared.closed.store(true, Ordering::Release);
        self.shared.queue.wake();
        let Some(thread) = self.thread.lock().take() else { return };
        let until = Instant::now() + within;
        while !thread.is_finished() && Instant::now() < until {
            self.shared.queue.wake();
            std::thread::sleep(Duration::from_millis(1));
        }
        if thread.is_finished() {
            let _ = thread.join();
        }
    }
}

impl Drop for Recorder {
    fn drop(&mut self) {
        self.shared.closed.store(true, Ordering::Release);
        self.shared.queue.wake();
    }
}

impl Telemetry for Recorder {
    fn shortest_ns(&self) -> Option<u64> {
        Some(self.shared.shortest_ns)
    }

    fn record(&self, event: TraceEvent) {
        if self.shared.closed.load(Ordering::Relaxed) {
            return;
        }
        let wakes = matches!(event, TraceEvent::BatchSubmitted { .. });
        self.shared.queue.push(event, 1, 0);
        if wakes {
            self.shared.queue.wake();
        }
    }
}

/// State of the thread.
struct RecorderThread {
    path: PathBuf,
    ring: Ring,
    timeline: TimelineBuilder,
    shared: Arc<RecorderShared>,
    clock: Clock,
    sources: RecorderSources,
    /// Tracks that the slot describes.
    described: HashSet<TrackId>,
    sequence: u32,
}

impl RecorderThread {
    fn new(
        config: &TraceConfig,
        path: PathBuf,
        ring: Ring,
        shared: Arc<RecorderShared>,
        clock: Clock,
        sources: RecorderSources,
    ) -> Self {
        let offset_ns = now_ns(ClockId::Boottime).saturating_sub(now_ns(ClockId::Monotonic));
        let pid = std::process::id();
        let salt = now_ns(ClockId::Realtime) ^ u64::from(pid).rotate_left(48);
        let timeline = TimelineBuilder::new((pid, &config.process), &config.functions, offset_ns, salt);
        Self { path, ring, timeline, shared, clock, sources, described: HashSet::new(), sequence: 0 }
    }

    fn run(mut self) {
        self.shared.queue.serve();
        let mut written = Instant::now();
        let mut before_ns = 0;
        loop {
            let closed = self.shared.closed.load(Ordering::Acquire);
            let now_ns = self.clock.now_ns();
            let loads = (self.sources.loads)();
            let open = loads.as_ref().is_some_and(|loads| loads.batches > 0);
            if let Some(loads) = &loads {
                self.timeline.loads(loads, now_ns);
            }
            let done = match self.take(now_ns) {
                Ok(()) if closed || written.elapsed() >= WRITE => {
                    // Reports of a batch's last calls came with this check at the latest.
                    self.timeline.finish_batches(if closed { u64::MAX } else { before_ns });
                    (before_ns, written) = (now_ns, Instant::now());
                    self.write(closed)
                }
                other => other,
            };
            if let Err(error) = done {
                self.shared.closed.store(true, Ordering::Release);
                (self.sources.on_trouble)(&self.path, &error.to_string());
                return;
            }
            if closed {
                return;
            }
            // A batch is reported a moment before the scheduler has it.
            let looks = open || self.timeline.has_open_batches();
            self.shared.queue.rest(MANY_EVENTS, Some(Instant::now() + if looks { LOOK } else { REST }));
        }
    }

    /// Takes in the events that came.
    fn take(&mut self, now_ns: u64) -> io::Result<()> {
        let most = self.ring.slot_bytes() / 4;
        for event in self.shared.queue.take(MOST_EVENTS) {
            self.timeline.take(event);
            if self.timeline.bytes > most {
                let items = self.timeline.take_items();
                self.put(items, false)?;
            }
        }
        self.timeline.dropped(self.shared.queue.dropped(), now_ns);
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
            return self.ring.append(Vec::new(), false);
        }
        self.sequence += 1;
        let used: Vec<TrackId> = items.iter().map(|item| item.track).collect();
        let body = body(items, self.sequence);
        let mut described = self.described.clone();
        let mut segment = head(&self.timeline.tracks, &used, &mut described, self.sequence);
        if !self.ring.has_room(segment.len() + body.len()) {
            if provisional {
                return self.ring.append(Vec::new(), false);
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

//! Turns reports of the engine into items of a timeline.
//!
//! - A call is a slice on the track of its worker or thread, inside that of its frame where there
//!   are several; calls of a loop or of an endpoint have tracks on which they don't overlap.
//! - A flow leads from the moment at which a call could have begun to each of its attempts.
//! - A batch has a slice, and one on the track of each of its functions: from its submission to the
//!   end of the last call, with the time until the last call started as "queue" in it.

use std::collections::{BTreeMap, HashMap};

use bytes::Bytes;
use guerdon_core::clock::seconds;
use guerdon_core::function::FunctionId;
use guerdon_core::in_flight::InFlight;
use guerdon_core::scheduler::{FunctionLoad, Loads};
use guerdon_core::tracer::{CallSpan, Executor, FrameSpan, Moment, TraceEvent};

use crate::timeline::batches::{BatchState, Batches, CallTally};
use crate::timeline::frame_layout::FrameLayout;
use crate::timeline::item::{Item, TrackId};
use crate::timeline::packets::{EventKind, TrackEvent, shortened};
use crate::timeline::tracks::{TrackKind, Tracks, first_u64};

/// The track that counts the events without room.
pub(crate) const DROPPED: &str = "dropped trace events";
/// Instants that are part of how calls are drawn.
pub(crate) const READY: &str = "ready";
pub(crate) const GAVE_BACK: &str = "gave calls back";

/// Frames that workers have, as far as is known.
const MOST_FRAMES: usize = 1 << 14;

/// The tracks of one function.
struct FunctionTracks {
    name: Bytes,
    /// Its batches.
    batches: TrackId,
    /// Calls whose executor is not known, and those that are several requests.
    calls: TrackId,
    queued: TrackId,
    in_flight: TrackId,
    limit: TrackId,
    /// The values of its counters that were written last.
    load: Option<FunctionLoad>,
}

/// A frame that a worker has.
struct SentFrame {
    executor: Executor,
    function: FunctionId,
    batch: u64,
    first: usize,
    calls: usize,
    at_ns: u64,
}

pub(crate) struct TimelineBuilder {
    pub tracks: Tracks,
    pub items: Vec<Item>,
    /// About how many bytes the items take.
    pub bytes: usize,
    /// Offset of the tracker's clock against that of the file.
    offset_ns: u64,
    salt: u64,
    process: TrackId,
    batches: TrackId,
    functions: Vec<FunctionTracks>,
    open: Batches,
    sent: BTreeMap<u64, SentFrame>,
    /// Calls that could have begun at one time, by batch and function: their flows.
    ready: BTreeMap<(u64, FunctionId, u64), Vec<u64>>,
    dropped: u64,
    lost: u64,
    dropped_track: TrackId,
    groups: HashMap<&'static str, TrackId>,
}

impl TimelineBuilder {
    /// `functions` are names and lanes; `offset_ns` is what the file's clock is ahead.
    pub(crate) fn new(process: (u32, &str), functions: &[(String, String)], offset_ns: u64, salt: u64) -> Self {
        let (pid, name) = process;
        let mut tracks = Tracks::new(salt);
        let process = tracks.of(None, name, TrackKind::Process(pid));
        let batches = tracks.of(Some(process), "batches", TrackKind::Slices);
        let functions = functions
            .iter()
            .map(|(name, lane)| {
                let group = tracks.of(Some(process), &format!("{name} ({lane})"), TrackKind::Slices);
                let mut of = |what, kind| tracks.of(Some(group), what, kind);
                FunctionTracks {
                    batches: of("batches", TrackKind::Slices),
                    queued: of("queued", TrackKind::Counter),
                    in_flight: of("in flight", TrackKind::Counter),
                    limit: of("limit", TrackKind::Counter),
                    calls: of("calls", TrackKind::Slices),
                    name: shortened(name),
                    load: None,
                }
            })
            .collect();
        let dropped_track = tracks.of(Some(process), DROPPED, TrackKind::Counter);
        Self {
            tracks,
            items: Vec::new(),
            bytes: 0,
            offset_ns,
            salt,
            process,
            batches,
            functions,
            open: Batches::default(),
            sent: BTreeMap::new(),
            ready: BTreeMap::new(),
            dropped: 0,
            lost: 0,
            dropped_track,
            groups: HashMap::new(),
        }
    }

    /// Takes the items to write; nothing of it is split from what belongs to it.
    pub(crate) fn take_items(&mut self) -> Vec<Item> {
        self.put_ready();
        self.bytes = 0;
        std::mem::take(&mut self.items)
    }

    pub(crate) fn take(&mut self, event: TraceEvent) {
        match event {
            TraceEvent::BatchSubmitted { batch, step, samples, groups, at_ns } => {
                self.open.submitted(batch, BatchState::new(step, samples, groups, at_ns));
            }
            TraceEvent::BatchDone { batch, samples, groups, at_ns } => self.open.done(batch, samples, groups, at_ns),
            TraceEvent::FrameSent { frame, executor, function, batch, first, calls, at_ns } => {
                if self.sent.len() >= MOST_FRAMES {
                    self.sent.pop_first();
                }
                self.sent.insert(frame, SentFrame { executor, function, batch, first, calls, at_ns });
            }
            TraceEvent::Frame { executor, function, span } => {
                self.sent.remove(&span.frame);
                self.frame(&executor, function, *span);
            }
            TraceEvent::Call { executor, function, span } => {
                self.open.ran(span.batch, function, CallTally::of(&span));
                let parent = self.executor_track(&executor, function);
                let (from, to) = (span.started_ns, span.ended_ns().max(span.started_ns + 1));
                let track = self.tracks.beside(parent, from, to);
                let details = self.call(function, &span);
                self.slice(track, 0, from, to, details);
            }
            TraceEvent::Moment { what, executor, function, at_ns, why } => {
                self.moment(what, &executor, function, at_ns, &why);
            }
        }
    }

    pub(crate) fn has_open_batches(&self) -> bool {
        !self.open.is_empty()
    }

    /// Writes the slices of batches that are done. Called between two looks at the queue: what a
    /// batch's last calls tell comes after its end.
    pub(crate) fn finish_batches(&mut self, before_ns: u64) {
        for (id, state) in self.open.take_over(before_ns) {
            self.batch(id, &state);
        }
    }

    fn batch(&mut self, id: u64, state: &BatchState) {
        let done_ns = state.done_ns.unwrap_or(state.submitted_ns);
        let name = Bytes::from(format!("batch {id}"));
        let with_step = |details: TrackEvent| match state.step {
            Some(step) => details.number("step", step),
            None => details,
        };
        let details = with_step(TrackEvent::named(name.clone()).number("batch", id))
            .number("samples", state.samples as u64)
            .number("groups", state.groups as u64);
        let (from, to) = (state.submitted_ns, done_ns.max(state.submitted_ns + 1));
        let track = self.tracks.beside(self.batches, from, to);
        self.slice(track, 0, from, to, details);
        for (function, ran) in &state.functions {
            let Some(tracks) = self.functions.get(*function) else { continue };
            let from = ran.ready_ns.min(ran.last_start_ns).max(state.submitted_ns.min(ran.last_start_ns));
            let to = ran.ended_ns.max(from + 2);
            let parent = tracks.batches;
            let details = with_step(TrackEvent::named(name.clone()).number("batch", id))
                .number("calls", ran.calls)
                .number("failed", ran.failed)
                .real("tail_s", seconds(ran.ended_ns.saturating_sub(ran.last_start_ns)));
            let track = self.tracks.beside(parent, from, to);
            self.slice(track, 0, from, to, details);
            if ran.last_start_ns > from {
                let queue = TrackEvent::named("queue").number("batch", id);
                self.slice(track, 1, from, ran.last_start_ns.min(to - 1).max(from + 1), queue);
            }
        }
    }

    fn frame(&mut self, executor: &Executor, function: FunctionId, mut span: FrameSpan) {
        if span.ran == 0 {
            return;
        }
        if span.given_back > 0 {
            let details = TrackEvent::named(GAVE_BACK).number("calls", span.given_back as u64);
            let track = self.executor_track(executor, function);
            self.instant(track, span.ended_ns, details.number("batch", span.batch));
        }
        let failed = span.calls.iter().filter(|call| call.has_failed()).count() as u64;
        let ran = CallTally {
            ready_ns: span.ready_ns,
            last_start_ns: span.last_start_ns,
            ended_ns: span.ended_ns,
            calls: span.ran as u64,
            failed,
        };
        self.open.ran(span.batch, function, ran);
        // A worker's failures are reported before the numbers of earlier calls.
        span.calls.sort_by_key(|call| call.started_ns);
        let parent = self.executor_track(executor, function);
        let (track, FrameLayout { from_ns: from, to_ns: to, calls: times }) =
            self.place(parent, executor.is_in_turn(), &span);
        let alone = if span.ran == 1 { span.calls.first() } else { None };
        if let Some(call) = alone {
            let details = self.call(function, call);
            self.slice(track, 0, from, to, details);
            return;
        }
        let details = TrackEvent::named(self.name(function))
            .number("batch", span.batch)
            .number("first sample", span.first as u64)
            .number("calls", span.ran as u64)
            .number("failed", failed)
            .real("queue_s", seconds(span.started_ns.saturating_sub(span.ready_ns)));
        self.slice(track, 0, from, to, details);
        for (call, (begin, end)) in span.calls.iter().zip(times) {
            let details = self.call(function, call);
            self.slice(track, 1, begin, end, details);
        }
    }

    /// Puts a frame on the track of its executor, if that runs one after the other and was free
    /// meanwhile, and else on one beside.
    fn place(&mut self, parent: TrackId, in_turn: bool, span: &FrameSpan) -> (TrackId, FrameLayout) {
        if in_turn && let Some(layout) = FrameLayout::within(span, self.tracks.gap(parent, span.started_ns)) {
            self.tracks.take(parent, layout.from_ns, layout.to_ns);
            return (parent, layout);
        }
        let layout = FrameLayout::new(span, span.started_ns);
        (self.tracks.beside(parent, layout.from_ns, layout.to_ns), layout)
    }

    /// Returns the details of a call's slice; its flow is kept for where it begins.
    fn call(&mut self, function: FunctionId, span: &CallSpan) -> TrackEvent {
        let flow = self.flow(function, span);
        if span.attempt <= 1 {
            self.ready.entry((span.batch, function, span.ready_ns)).or_default().push(flow);
            self.bytes += 10;
        }
        let mut details = TrackEvent::named(self.name(function))
            .flow(flow)
            .number("batch", span.batch)
            .number("sample", span.first as u64)
            .text("status", span.word())
            .real("queue_s", seconds(span.started_ns.saturating_sub(span.ready_ns)));
        if span.samples > 1 {
            details = details.number("samples", span.samples as u64);
        }
        if span.attempt > 1 {
            details = details.number("attempt", u64::from(span.attempt));
        }
        if span.finish {
            details = details.text("call", "finish_group");
        }
        match &span.reason {
            Some(reason) => details.text("reason", reason),
            None => details,
        }
    }

    fn flow(&self, function: FunctionId, span: &CallSpan) -> u64 {
        let mut hasher = blake3::Hasher::new();
        for number in [self.salt, span.batch, function as u64, span.first as u64, u64::from(span.finish)] {
            hasher.update(&number.to_le_bytes());
        }
        first_u64(&hasher)
    }

    /// Writes where the flows of calls begin.
    fn put_ready(&mut self) {
        for ((batch, function, ready_ns), flows) in std::mem::take(&mut self.ready) {
            let Some(tracks) = self.functions.get(function) else { continue };
            let (track, calls) = (tracks.calls, flows.len() as u64);
            let details = TrackEvent { flows, ..TrackEvent::named(READY) };
            self.instant(track, ready_ns, details.number("batch", batch).number("calls", calls));
        }
    }

    fn moment(&mut self, what: Moment, executor: &Executor, function: Option<FunctionId>, at_ns: u64, why: &str) {
        let track = match function {
            Some(function) if *executor == Executor::Elsewhere => {
                self.functions.get(function).map_or(self.process, |tracks| tracks.calls)
            }
            _ => self.executor_track(executor, function.unwrap_or(usize::MAX)),
        };
        let details = TrackEvent::named(what.name());
        self.instant(track, at_ns, if why.is_empty() { details } else { details.text("reason", why) });
    }

    /// The track of an executor.
    fn executor_track(&mut self, executor: &Executor, function: FunctionId) -> TrackId {
        let (group, name) = match executor {
            Executor::Worker(slot) => ("workers", format!("worker {slot}")),
            Executor::Thread(thread) => ("threads", format!("thread {thread}")),
            Executor::Loop(index) => ("event loops", format!("loop {index}")),
            Executor::Endpoint(host) => ("endpoints", host.to_string()),
            Executor::Elsewhere => {
                return self.functions.get(function).map_or(self.process, |tracks| tracks.calls);
            }
        };
        let process = self.process;
        let group =
            *self.groups.entry(group).or_insert_with(|| self.tracks.of(Some(process), group, TrackKind::Slices));
        self.tracks.of(Some(group), &name, TrackKind::Slices)
    }

    fn name(&self, function: FunctionId) -> Bytes {
        self.functions.get(function).map_or_else(|| Bytes::from("?"), |tracks| tracks.name.clone())
    }

    /// Writes counters whose values changed.
    pub(crate) fn loads(&mut self, loads: &Loads, at_ns: u64) {
        for (function, load) in loads.functions.iter().enumerate() {
            let Some(tracks) = self.functions.get_mut(function) else { continue };
            let before = tracks.load.replace(*load);
            let (queued, in_flight, limit, calls) = (tracks.queued, tracks.in_flight, tracks.limit, tracks.calls);
            let changed = |of: fn(&FunctionLoad) -> Option<usize>| {
                of(load).filter(|value| before.as_ref().and_then(of) != Some(*value))
            };
            let counters = [
                (queued, changed(|load| Some(load.queued))),
                (in_flight, changed(|load| Some(load.in_flight))),
                (limit, changed(|load| load.limit)),
            ];
            let closed = before.is_some_and(|before| before.breaker_open) && !load.breaker_open;
            for (track, value) in counters {
                if let Some(value) = value {
                    self.counter(track, at_ns, value as u64);
                }
            }
            if closed {
                self.instant(calls, at_ns, TrackEvent::named("circuit breaker closed"));
            }
        }
    }

    /// Items that were too many for a slot.
    pub(crate) const fn lost(&mut self, items: u64) {
        self.lost += items;
    }

    pub(crate) fn dropped(&mut self, dropped: u64, at_ns: u64) {
        let dropped = dropped + self.lost;
        if self.dropped != dropped {
            self.dropped = dropped;
            // Their ends may be among the dropped ones.
            self.sent.clear();
            self.counter(self.dropped_track, at_ns, dropped);
        }
    }

    /// Beginnings of the calls that run now, for the end of the file.
    pub(crate) fn open_items(&mut self, calls: Vec<InFlight>, now_ns: u64) -> Vec<Item> {
        let mut items = Vec::new();
        let mut taken: Vec<TrackId> = Vec::new();
        let running = |details: TrackEvent| details.text("status", "running");
        let sent: Vec<(Executor, FunctionId, u64, usize, usize, u64)> = self
            .sent
            .values()
            .map(|one| (one.executor.clone(), one.function, one.batch, one.first, one.calls, one.at_ns))
            .collect();
        for (executor, function, batch, first, calls, at_ns) in sent {
            let track = self.executor_track(&executor, function);
            // If a worker has two frames, the first one runs.
            if taken.contains(&track) {
                continue;
            }
            taken.push(track);
            let details =
                TrackEvent::named(self.name(function)).number("batch", batch).number("first sample", first as u64);
            let from = at_ns.max(self.tracks.last_end_ns(track)).min(now_ns);
            let details = running(details.number("calls", calls as u64));
            items.push(self.item(track, 0, from, EventKind::Begin, details));
        }
        for InFlight { call, location, .. } in calls {
            let (executor, started_ns) = (Executor::from(location), now_ns.saturating_sub(call.age_ns));
            let parent = self.executor_track(&executor, call.function);
            let (track, from) = if executor.is_in_turn() {
                (parent, started_ns.max(self.tracks.last_end_ns(parent)))
            } else {
                // Nothing begins after it on its track: it has not ended.
                (self.tracks.free_beside(parent, started_ns, u64::MAX - 1, &taken), started_ns)
            };
            if taken.contains(&track) {
                continue;
            }
            taken.push(track);
            let details = TrackEvent::named(self.name(call.function))
                .number("batch", call.batch)
                .number("sample", call.samples.first().map_or(0, |samples| samples.start) as u64)
                .number("attempt", u64::from(call.attempt));
            items.push(self.item(track, 0, from.min(now_ns), EventKind::Begin, running(details)));
        }
        items
    }

    fn instant(&mut self, track: TrackId, at_ns: u64, event: TrackEvent) {
        self.push(track, 0, at_ns, EventKind::Instant, event);
    }

    fn counter(&mut self, track: TrackId, at_ns: u64, value: u64) {
        self.push(track, 0, at_ns, EventKind::Counter, TrackEvent { value: Some(value), ..TrackEvent::default() });
    }

    fn slice(&mut self, track: TrackId, depth: u8, from_ns: u64, to_ns: u64, event: TrackEvent) {
        self.push(track, depth, from_ns, EventKind::Begin, event);
        self.push(track, depth, to_ns, EventKind::End, TrackEvent::default());
    }

    fn push(&mut self, track: TrackId, depth: u8, at_ns: u64, kind: EventKind, event: TrackEvent) {
        let item = self.item(track, depth, at_ns, kind, event);
        self.bytes += item.bytes();
        self.items.push(item);
    }

    fn item(&self, track: TrackId, depth: u8, at_ns: u64, kind: EventKind, event: TrackEvent) -> Item {
        let event = TrackEvent { kind: kind.into(), track: self.tracks.get(track).uuid, ..event };
        Item { at_ns: at_ns.saturating_add(self.offset_ns), depth, track, event }
    }
}

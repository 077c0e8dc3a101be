//! Makes the items of a timeline from the events of the engine.
//!
//! - A call is a slice on the track of its worker or thread, and within the slice of its frame if
//!   that has several calls. Calls of a loop or of an endpoint have tracks on which they don't
//!   overlap.
//! - A flow leads from the time at which a call could have begun to each of its attempts.
//! - A batch has a slice, and one on the track of each of its functions: from its submission to the
//!   end of the last call. Its part until the last call started is the slice "queue".

use std::collections::{BTreeMap, HashMap};

use bytes::Bytes;
use guerdon_core::clock::seconds;
use guerdon_core::function::FunctionId;
use guerdon_core::in_flight::InFlight;
use guerdon_core::scheduler::{FunctionLoad, Loads};
use guerdon_core::tracer::{CallSpan, Executor, FrameSpan, Moment, SentFrame, TraceEvent};

use crate::timeline::batches::{BatchState, Batches, CallTally};
use crate::timeline::frame_layout::FrameLayout;
use crate::timeline::item::{Item, TrackId};
use crate::timeline::packets::{EventKind, TrackEvent, shortened};
use crate::timeline::tracks::{TrackKind, Tracks, first_u64};

/// The track that counts dropped events.
pub(crate) const DROPPED: &str = "dropped trace events";
/// Instants that belong to calls.
pub(crate) const READY: &str = "ready";
pub(crate) const GAVE_BACK: &str = "gave calls back";

/// The most frames of workers that are kept.
const MOST_FRAMES: usize = 1 << 14;

/// The tracks of one function.
struct FunctionTracks {
    name: Bytes,
    /// The track of its batches.
    batches: TrackId,
    /// The track of calls whose executor is not known, and of calls with several requests.
    calls: TrackId,
    /// Tracks of what `counters` returns.
    counters: [TrackId; 3],
    /// State of its queue that was written last.
    load: Option<FunctionLoad>,
}

/// Calls that wait, calls that run, and the most that may run if there is a limit.
fn counters(load: &FunctionLoad) -> [Option<usize>; 3] {
    [Some(load.queued), Some(load.in_flight), load.limit]
}

pub(crate) struct TimelineBuilder {
    pub tracks: Tracks,
    pub items: Vec<Item>,
    /// Approximate bytes of the items.
    pub bytes: usize,
    /// Added to the engine's times, which gives those of the file.
    offset_ns: u64,
    salt: u64,
    process: TrackId,
    batches: TrackId,
    functions: Vec<FunctionTracks>,
    open: Batches,
    /// Frames that workers have, as far as is known.
    sent: BTreeMap<u64, SentFrame>,
    /// Flows of calls that could have begun at the same time, by batch, function and time.
    ready: BTreeMap<(u64, FunctionId, u64), Vec<u64>>,
    dropped: u64,
    lost: u64,
    dropped_track: TrackId,
    groups: HashMap<&'static str, TrackId>,
}

impl TimelineBuilder {
    /// `functions` are names and lanes; `offset_ns` is the lead of the file's clock.
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
                    counters: ["queued", "in flight", "limit"].map(|what| of(what, TrackKind::Counter)),
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

    /// Removes and returns the items to write. Items that belong together are returned together.
    pub(crate) fn take_items(&mut self) -> Vec<Item> {
        self.put_ready();
        self.bytes = 0;
        std::mem::take(&mut self.items)
    }

    pub(crate) fn take(&mut self, event: TraceEvent) {
        match event {
            TraceEvent::BatchSubmitted { batch, step, samples, groups, at_ns } => {
                let (done_ns, functions) = (None, BTreeMap::new());
                self.open
                    .submitted(batch, BatchState { step, submitted_ns: at_ns, samples, groups, done_ns, functions });
            }
            TraceEvent::BatchDone { batch, samples, groups, at_ns } => self.open.done(batch, samples, groups, at_ns),
            TraceEvent::FrameSent(sent) => {
                if self.sent.len() >= MOST_FRAMES {
                    self.sent.pop_first();
                }
                self.sent.insert(sent.frame, sent);
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

    /// Writes the slices of batches that were done by this time. It must be in the past: the events
    /// of a batch's last calls come after that of its end.
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
        // A worker's failures are reported before its earlier calls.
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

    /// Puts a frame on the track of its executor if that runs calls in turn and the track is free,
    /// and otherwise on a track below it.
    fn place(&mut self, parent: TrackId, in_turn: bool, span: &FrameSpan) -> (TrackId, FrameLayout) {
        if in_turn && let Some(layout) = FrameLayout::within(span, self.tracks.busy(parent).gap(span.started_ns)) {
            self.tracks.busy(parent).take(layout.from_ns, layout.to_ns);
            return (parent, layout);
        }
        let layout = FrameLayout::new(span, span.started_ns);
        (self.tracks.beside(parent, layout.from_ns, layout.to_ns), layout)
    }

    /// Returns the details of a call's slice, and keeps its flow for `put_ready`.
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

    /// Writes the beginnings of the calls' flows.
    fn put_ready(&mut self) {
        for ((batch, function, ready_ns), flows) in std::mem::take(&mut self.ready) {
            let Some(tracks) = self.functions.get(function) else { continue };
            let (track, calls) = (tracks.calls, flows.len() as u64);
            let details = TrackEvent { flows, ..TrackEvent::named(READY) };
            self.instant(track, ready_ns, details.number("batch", batch).number("calls", calls));
        }
    }

    fn moment(&mut self, what: Moment, executor: &Executor, function: Option<FunctionId>, at_ns: u64, why: &str) {
        let track = self.executor_track(executor, function.unwrap_or(usize::MAX));
        let details = TrackEvent::named(what.name());
        self.instant(track, at_ns, if why.is_empty() { details } else { details.text("reason", why) });
    }

    /// Returns the track of an executor.
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
            let (tracks, calls) = (tracks.counters, tracks.calls);
            let known = before.as_ref().map_or([None; 3], counters);
            for ((track, value), known) in tracks.into_iter().zip(counters(load)).zip(known) {
                if let Some(value) = value
                    && known != Some(value)
                {
                    self.counter(track, at_ns, value as u64);
                }
            }
            let closed = before.is_some_and(|before| before.breaker_open) && !load.breaker_open;
            if closed {
                self.instant(calls, at_ns, TrackEvent::named("circuit breaker closed"));
            }
        }
    }

    /// Counts items that did not fit into a slot.
    pub(crate) const fn lost(&mut self, items: u64) {
        self.lost += items;
    }

    pub(crate) fn dropped(&mut self, dropped: u64, at_ns: u64) {
        let dropped = dropped + self.lost;
        if self.dropped != dropped {
            self.dropped = dropped;
            // The events of their ends may have been dropped.
            self.sent.clear();
            self.counter(self.dropped_track, at_ns, dropped);
        }
    }

    /// Returns the beginnings of the calls that run now, for the end of the file.
    pub(crate) fn open_items(&mut self, calls: Vec<InFlight>, now_ns: u64) -> Vec<Item> {
        let mut items = Vec::new();
        let mut taken: Vec<TrackId> = Vec::new();
        let running = |details: TrackEvent| details.text("status", "running");
        let sent: Vec<SentFrame> = self.sent.values().cloned().collect();
        for SentFrame { executor, function, batch, first, calls, at_ns, .. } in sent {
            let track = self.executor_track(&executor, function);
            // The first of a worker's two frames is the one that runs.
            if taken.contains(&track) {
                continue;
            }
            taken.push(track);
            let details =
                TrackEvent::named(self.name(function)).number("batch", batch).number("first sample", first as u64);
            let from = at_ns.max(self.tracks.busy(track).last_end_ns()).min(now_ns);
            let details = running(details.number("calls", calls as u64));
            items.push(self.item(track, 0, from, EventKind::Begin, details));
        }
        for InFlight { call, location, .. } in calls {
            let (executor, started_ns) = (Executor::from(location), now_ns.saturating_sub(call.age_ns));
            let parent = self.executor_track(&executor, call.function);
            let (track, from) = if executor.is_in_turn() {
                (parent, started_ns.max(self.tracks.busy(parent).last_end_ns()))
            } else {
                // It has not ended, so nothing may begin after it on its track.
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

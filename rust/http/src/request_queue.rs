//! The request queue of one function: calls that wait, and requests in flight.
//!
//! - At most `limit` requests are in flight. Each is a task that takes the next call when it is
//!   done.
//! - A request is one call: of one sample, or of several that the scheduler batched.
//! - A request whose call was completed meanwhile is dropped, and its connection with it.
//! - Time in the queue is not run time: a call starts when its request does.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use guerdon_core::clock::Clock;
use guerdon_core::in_flight::InFlightCall;
use guerdon_core::outcome::{Failure, FailureKind, Times};
use guerdon_core::report::Report;
use parking_lot::Mutex;
use tokio::runtime::Handle;
use tokio::sync::Notify;
use tokio::task::AbortHandle;

use crate::body::{BodyTemplate, JSON, Text};
use crate::fleet::{Failed, Fleet, RequestKey};
use crate::function::HttpFunction;
use crate::in_flight::InFlightFrame;
use crate::long_body::{LongBody, TextSource};
use crate::meter::Meter;
use crate::repair::Repairs;
use crate::request::ScoreRequest;
use crate::request_body::RequestBody;
use crate::response::Scores;

/// A body of so many bytes is written while it is sent.
const LONG_BODY: usize = 32 << 10;

/// A call: its frame, and its index in that.
type Call = (Arc<InFlightFrame>, usize);

/// See the module.
pub struct RequestQueue {
    pub spec: HttpFunction,
    template: Arc<BodyTemplate>,
    pub function: usize,
    pub limit: usize,
    pub timeout: Duration,
    pub clock: Clock,
    pub runtime: Handle,
    /// Notified when nothing is left after `close`.
    pub gone: Arc<Notify>,
    state: Mutex<QueueState>,
    /// Answers that could not be read, for the next attempts of their calls. Written by requests
    /// that end.
    repairs: Mutex<Repairs>,
}

struct QueueState {
    /// Calls that no request has taken, by frame. Written by frames that arrive and by requests
    /// that take them.
    waiting: BTreeMap<(u64, bool, u64), WaitingFrame>,
    /// Requests in flight. Written by themselves.
    tasks: BTreeMap<u64, RequestTask>,
    /// Calls in `waiting`, and tasks without a call: counted, since each arrival asks.
    left: usize,
    idle: usize,
    last: u64,
    /// Taken by `close`.
    fleet: Option<Arc<Fleet>>,
}

struct WaitingFrame {
    frame_ref: Arc<InFlightFrame>,
    next: usize,
}

/// A request in flight, or about to be.
struct RequestTask {
    call: Option<Call>,
    started_ns: u64,
    /// Where it was sent. Written by the request.
    server: Arc<Mutex<Arc<str>>>,
    /// Notified when its call was completed meanwhile; one for each request.
    stop: Arc<Notify>,
    /// For `close`.
    abort: Option<AbortHandle>,
}

impl RequestTask {
    fn new() -> Self {
        let server = Arc::new(Mutex::new("".into()));
        Self { call: None, started_ns: 0, server, stop: Arc::default(), abort: None }
    }
}

/// The next request: its call and samples, what stops it, and the fleet to send it through.
struct NextRequest {
    call: Call,
    samples: Vec<(usize, u32)>,
    stop: Arc<Notify>,
    fleet: Arc<Fleet>,
    /// Calls that wait behind it.
    waiting: usize,
    server: Arc<Mutex<Arc<str>>>,
}

/// Frees the slot of a request, however it ended.
struct TaskGuard {
    queue: Arc<RequestQueue>,
    task: u64,
}

impl Drop for TaskGuard {
    fn drop(&mut self) {
        let call = {
            let mut state = self.queue.state.lock();
            let task = state.tasks.remove(&self.task);
            state.idle -= usize::from(task.as_ref().is_some_and(|task| task.call.is_none()));
            if state.fleet.is_none() && state.tasks.is_empty() {
                self.queue.gone.notify_waiters();
            }
            task.and_then(|task| task.call)
        };
        // Dropped in mid-request, by `close` or a panic: its call goes back to the scheduler.
        if let Some((frame_ref, _)) = call {
            frame_ref.end(|_| {});
        }
        self.queue.start();
    }
}

impl RequestQueue {
    pub fn new(
        spec: HttpFunction,
        function: usize,
        (limit, timeout): (usize, Duration),
        clock: Clock,
        runtime: Handle,
        gone: Arc<Notify>,
        fleet: Arc<Fleet>,
    ) -> Arc<Self> {
        let (waiting, tasks) = (BTreeMap::new(), BTreeMap::new());
        let state = Mutex::new(QueueState { waiting, tasks, left: 0, idle: 0, last: 0, fleet: Some(fleet) });
        let template = Arc::new(spec.body.clone());
        let repairs = Mutex::default();
        Arc::new(Self { spec, template, function, limit, timeout, clock, runtime, gone, state, repairs })
    }

    /// Queues calls; gives them back if it is closed.
    pub fn push(self: &Arc<Self>, frame_ref: Arc<InFlightFrame>) {
        {
            let mut state = self.state.lock();
            if state.fleet.is_none() {
                drop(state);
                return; // and drops the frame without the lock
            }
            state.left += frame_ref.calls;
            state.waiting.insert(frame_ref.order, WaitingFrame { frame_ref, next: 0 });
        }
        self.start();
    }

    /// Starts as many requests as may be in flight.
    fn start(self: &Arc<Self>) {
        let begun: Vec<u64> = {
            let mut state = self.state.lock();
            if state.fleet.is_none() {
                return;
            }
            // One that has no call yet is about to take one.
            let wanted = state.left.saturating_sub(state.idle);
            let free = self.limit.saturating_sub(state.tasks.len());
            let first = state.last + 1;
            state.last += wanted.min(free) as u64;
            let begun = first..=state.last;
            state.idle += wanted.min(free);
            state.tasks.extend(begun.clone().map(|task| (task, RequestTask::new())));
            begun.collect()
        };
        for task in begun {
            let spawned = self.runtime.spawn(run_requests(TaskGuard { queue: self.clone(), task }));
            let mut state = self.state.lock();
            if let Some(task) = state.tasks.get_mut(&task) {
                task.abort = Some(spawned.abort_handle());
            }
            let closed = state.fleet.is_none();
            drop(state);
            if closed {
                spawned.abort(); // `close` did not know of it
            }
        }
    }

    /// The next request. Its call is taken and counted under one lock: `start` relies on it.
    fn take(&self, task: u64) -> Option<NextRequest> {
        loop {
            let stop = Arc::new(Notify::new());
            let (call, fleet, server, waiting) = {
                let mut state = self.state.lock();
                let fleet = state.fleet.clone()?;
                let call = state.next()?;
                let waiting = state.left;
                let task = state.tasks.get_mut(&task)?;
                (task.call, task.stop, task.started_ns) = (Some(call.clone()), stop.clone(), self.clock.now_ns());
                let server = task.server.clone();
                state.idle -= 1;
                (call, fleet, server, waiting)
            };
            // Without the lock: completing a call may push another frame (see `in_flight`).
            let (frame_ref, index) = &call;
            if frame_ref.is_open(*index) {
                let samples = frame_ref.samples(*index);
                return Some(NextRequest { call, samples, stop, fleet, waiting, server });
            }
            self.is_idle(task);
            frame_ref.end(|_| {});
        }
    }

    /// A request has no call any more, and is about to take another.
    fn is_idle(&self, task: u64) {
        let mut state = self.state.lock();
        if let Some(task) = state.tasks.get_mut(&task) {
            task.call = None;
            state.idle += 1;
        }
    }

    /// Completes the call of a request; `None` where the scheduler has completed it.
    fn complete(
        &self,
        task: u64,
        (frame_ref, call): &Call,
        started_ns: u64,
        ended: Option<Result<Scores, Failed>>,
        meter: &Meter<'_>,
    ) {
        self.is_idle(task);
        let times = Times { started_ns, run_ns: self.clock.now_ns().saturating_sub(started_ns) };
        frame_ref.end(|frame| {
            if let Some(tokens) = meter.tokens() {
                frame.used(tokens);
            }
            frame.report(*call, meter.report());
            match ended {
                Some(Ok(Scores { cells, .. })) => frame.complete_many(*call, cells, times),
                Some(Err(Failed { failure, others_up })) => {
                    if others_up {
                        frame.others_are_up();
                    }
                    frame.fail(*call, failure, times);
                }
                None => {}
            }
        });
    }

    /// The template of a request: of another attempt with what was wrong with the last answer.
    fn template(&self, key: RequestKey) -> Arc<BodyTemplate> {
        if key.attempt > 1
            && self.template.takes_repair()
            && let Some(messages) = self.repairs.lock().get((key.batch, key.sample))
        {
            return Arc::new(self.template.repaired(messages));
        }
        self.template.clone()
    }

    /// Keeps an answer that could not be read until there is a score.
    fn keep_repair(&self, (frame_ref, index): &Call, key: RequestKey, scored: bool, meter: &Meter<'_>) {
        if (scored && key.attempt == 1) || !self.template.takes_repair() {
            return;
        }
        if scored {
            self.repairs.lock().remove((key.batch, key.sample));
        } else if let Some(messages) = meter.repair()
            && let Some((batch, sample)) = frame_ref.place(*index)
        {
            self.repairs.lock().put(&batch, sample, messages);
        }
    }

    fn body(
        &self,
        template: &Arc<BodyTemplate>,
        frame_ref: &Arc<InFlightFrame>,
        samples: &[(usize, u32)],
    ) -> Option<RequestBody> {
        let texts = FrameTexts { frame_ref: frame_ref.clone(), function: self.function, samples: Vec::new() };
        let text = |column, sample| texts.of(column, sample);
        if template.bytes(samples, text) < LONG_BODY {
            return template.fill(samples, text).map(RequestBody::from);
        }
        let texts = FrameTexts { samples: samples.to_vec(), ..texts };
        LongBody::new(template.clone(), Box::new(texts), samples.len()).map(|body| RequestBody::Long(body.into()))
    }

    /// Drops requests whose calls were completed meanwhile, and what was kept for them; whether
    /// anything is here.
    pub fn drop_abandoned(&self) -> bool {
        let kept = self.repairs.lock().drop_ended();
        let (tasks, busy) = {
            let state = self.state.lock();
            let with_call = |task: &RequestTask| Some((task.call.clone()?, task.stop.clone()));
            let tasks: Vec<(Call, Arc<Notify>)> = state.tasks.values().filter_map(with_call).collect();
            (tasks, state.is_busy())
        };
        for ((frame_ref, call), stop) in tasks {
            if !frame_ref.is_open(call) {
                stop.notify_one();
            }
        }
        busy || kept
    }

    pub fn is_busy(&self) -> bool {
        self.state.lock().is_busy() || self.keeps_repairs()
    }

    /// Whether answers of calls that may be tried again are kept.
    pub fn keeps_repairs(&self) -> bool {
        !self.repairs.lock().is_empty()
    }

    /// Snapshots of the calls in flight, for `dump()`,
    /// each with its server.
    pub fn in_flight(&self, now_ns: u64) -> Vec<(InFlightCall, String)> {
        let tasks: Vec<(Call, u64, Arc<str>)> = {
            let state = self.state.lock();
            let of = |task: &RequestTask| Some((task.call.clone()?, task.started_ns, task.server.lock().clone()));
            state.tasks.values().filter_map(of).collect()
        };
        let snapshot = |((frame_ref, call), since_ns, server): &(Call, u64, Arc<str>)| {
            let server = if server.is_empty() { self.spec.endpoint.host() } else { server.to_string() };
            Some((frame_ref.in_flight(*call, now_ns.saturating_sub(*since_ns))?, server))
        };
        tasks.iter().filter_map(snapshot).collect()
    }

    /// The fleet, until the queue is closed.
    pub fn fleet(&self) -> Option<Arc<Fleet>> {
        self.state.lock().fleet.clone()
    }

    /// Ends all requests and closes the connections.
    pub fn close(&self) {
        let (waiting, tasks, fleet) = {
            let mut state = self.state.lock();
            let tasks: Vec<AbortHandle> = state.tasks.values().filter_map(|task| task.abort.clone()).collect();
            (std::mem::take(&mut state.waiting), tasks, state.fleet.take())
        };
        for task in tasks {
            task.abort();
        }
        drop((waiting, fleet));
    }

    pub fn is_gone(&self) -> bool {
        let state = self.state.lock();
        state.fleet.is_none() && state.tasks.is_empty()
    }
}

impl QueueState {
    /// The next call that no request has taken.
    fn next(&mut self) -> Option<Call> {
        loop {
            let mut entry = self.waiting.first_entry()?;
            let WaitingFrame { frame_ref, next } = entry.get_mut();
            if *next < frame_ref.calls {
                let call = (frame_ref.clone(), *next);
                *next += 1;
                self.left -= 1;
                return Some(call);
            }
            entry.remove();
        }
    }

    fn is_busy(&self) -> bool {
        !self.tasks.is_empty() || !self.waiting.is_empty()
    }
}

/// Sends one request after the other, until no call waits.
async fn run_requests(guard: TaskGuard) {
    let queue = guard.queue.clone();
    while let Some(NextRequest { call, samples, stop, fleet, waiting, server }) = queue.take(guard.task) {
        let started_ns = queue.clock.now_ns();
        let meter = Meter::new(&queue.spec.tariff, queue.clock);
        let mut dropped = DroppedUsage { call: Some(&call), meter: &meter };
        let key = call.0.key(call.1, waiting);
        let ended = match queue.body(&queue.template(key), &call.0, &samples) {
            Some(body) => {
                let (parser, timeout) = (&queue.spec.parser, queue.timeout);
                let request = ScoreRequest {
                    second: &|| call.0.second_request(),
                    server: &server,
                    parser,
                    body,
                    samples: samples.len(),
                    meter: &meter,
                    timeout,
                };
                tokio::select! {
                    ended = fleet.send(key, &request, timeout) => Some(ended),
                    () = stop.notified() => None,
                }
            }
            None => Some(Err(Failed { failure: no_texts(), others_up: false })),
        };
        if let Some(ended) = &ended {
            queue.keep_repair(&call, key, ended.is_ok(), &meter);
        }
        dropped.call = None;
        queue.complete(guard.task, &call, started_ns, ended, &meter);
    }
}

/// Reports what a call used that is dropped in mid-request, by `close` or a panic.
struct DroppedUsage<'a> {
    /// None where its end reports it.
    call: Option<&'a Call>,
    meter: &'a Meter<'a>,
}

impl Drop for DroppedUsage<'_> {
    fn drop(&mut self) {
        if let Some((frame_ref, call)) = self.call {
            frame_ref.report(*call, Report { extra: Vec::new(), ..self.meter.report() });
        }
    }
}

/// The texts of a frame's samples.
struct FrameTexts {
    frame_ref: Arc<InFlightFrame>,
    function: usize,
    /// Those of a request, in order.
    samples: Vec<(usize, u32)>,
}

impl FrameTexts {
    fn of(&self, column: usize, (share, sample): (usize, u32)) -> Option<Text<'_>> {
        let raw = self.frame_ref.payload(share)?.text(self.function, column, sample)?;
        // The names are the same in all shares of a frame.
        let names = self.frame_ref.payload(0)?.names(self.function, false)?;
        Some(Text { raw, json: names.get(column).is_some_and(|name| name == JSON) })
    }
}

impl TextSource for FrameTexts {
    fn text(&self, column: usize, place: usize) -> Option<Text<'_>> {
        self.of(column, *self.samples.get(place)?)
    }
}

fn no_texts() -> Failure {
    Failure {
        kind: FailureKind::Error,
        reason: "internal error: the texts of its request were not captured".to_owned(),
        traceback: None,
        retryable: false,
        retry_after: None,
        answer: None,
    }
}

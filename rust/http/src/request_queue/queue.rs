//! Sends the calls of one function: at most `limit` requests are in flight.
//!
//! - Each is a task that takes the next call when it is done.
//! - A request is one call: of one sample, or of several that the scheduler batched.
//! - A request whose call was completed meanwhile is dropped, and its connection with it.
//! - Time in the queue is not run time: a call starts when its request does.

use std::sync::Arc;
use std::time::Duration;

use guerdon_core::clock::Clock;
use guerdon_core::in_flight::InFlightCall;
use guerdon_core::limits::{AcquireResult, NextRequest, Permit};
use guerdon_core::member_call::JUDGMENTS;
use guerdon_core::outcome::{Answer, Cell, Failure, Times};
use guerdon_core::report::{Extra, Report};
use guerdon_core::tracer::Executor;
use parking_lot::Mutex;
use tokio::runtime::Handle;
use tokio::sync::Notify;

use super::bodies::Bodies;
use super::calls::{Call, Calls, RequestTask, TakenCall};
use crate::call_store::CallStore;
use crate::fleet::{Fleet, RequestFailure, RequestKey};
use crate::function::HttpFunction;
use crate::in_flight::InFlightFrame;
use crate::meter::Meter;
use crate::programs::{self, BegunProgram, Program, ProgramJudge, ProgramStep, failure_of};
use crate::request::ScoreRequest;
use crate::request_body::RequestBody;
use crate::response::{ResponseParser, Scores};

/// See the module.
pub struct RequestQueue {
    pub spec: HttpFunction,
    pub limit: usize,
    pub timeout: Duration,
    pub clock: Clock,
    pub runtime: Handle,
    /// Notified when nothing is left after `close`.
    pub gone: Arc<Notify>,
    calls: Mutex<Calls>,
    /// Bodies of requests, by slot; a single one serves all slots.
    bodies: Vec<Bodies>,
    /// Programs whose calls may be tried again, how often their present request has failed, and
    /// their bytes. Written by requests that fail and that repeat them, and by the watchdog.
    programs: Mutex<CallStore<(BegunProgram, u16, usize)>>,
}

/// Frees the slot of a request, however it ended.
struct TaskGuard {
    queue: Arc<RequestQueue>,
    task: u64,
}

impl Drop for TaskGuard {
    fn drop(&mut self) {
        let call = {
            let mut calls = self.queue.calls.lock();
            let call = calls.end(self.task);
            if calls.is_gone() {
                self.queue.gone.notify_waiters();
            }
            call
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
        let others = spec.criteria.iter().flat_map(|criteria| &criteria.others).map(|(body, _)| body);
        let bodies =
            std::iter::once(&spec.body).chain(others).map(|body| Bodies::new(body.clone(), function)).collect();
        let calls = Mutex::new(Calls::new(fleet));
        let programs = Mutex::new(CallStore::new(programs::MOST_BYTES));
        Arc::new(Self { spec, limit, timeout, clock, runtime, gone, calls, bodies, programs })
    }

    /// Queues calls; gives them back if it is closed.
    pub fn push(self: &Arc<Self>, frame_ref: Arc<InFlightFrame>) {
        {
            let mut calls = self.calls.lock();
            if calls.is_closed() {
                drop(calls);
                return; // and drops the frame without the lock
            }
            calls.add(frame_ref);
        }
        self.start();
    }

    /// Starts as many requests as may be in flight.
    fn start(self: &Arc<Self>) {
        let begun = {
            let mut calls = self.calls.lock();
            if calls.is_closed() {
                return;
            }
            calls.begin(self.limit)
        };
        for task in begun {
            let spawned = self.runtime.spawn(run_requests(TaskGuard { queue: self.clone(), task }));
            let closed = {
                let mut calls = self.calls.lock();
                calls.spawned(task, spawned.abort_handle());
                calls.is_closed()
            };
            if closed {
                spawned.abort(); // `close` did not know of it
            }
        }
    }

    /// The next call and its samples, taken and counted under one lock: `start` relies on it.
    fn take(&self, task: u64) -> Option<(TakenCall, Vec<(usize, u32)>)> {
        loop {
            let taken = self.calls.lock().take(task, || self.clock.now_ns())?;
            // Made without the lock: completing a call may push another frame (see `in_flight`).
            let (frame_ref, index) = &taken.call;
            if frame_ref.is_open(*index) {
                let samples = frame_ref.samples(*index);
                return Some((taken, samples));
            }
            self.is_idle(task);
            frame_ref.end(|_| {});
        }
    }

    fn is_idle(&self, task: u64) {
        self.calls.lock().is_idle(task);
    }

    /// Completes the call of a request; `None` where the scheduler has completed it.
    fn complete(
        &self,
        task: u64,
        (frame_ref, call): &Call,
        started_ns: u64,
        ended: Option<Result<Scores, RequestFailure>>,
        server: &Mutex<Arc<str>>,
        meter: &Meter<'_>,
    ) {
        self.is_idle(task);
        let times = Times { started_ns, run_ns: self.clock.now_ns().saturating_sub(started_ns) };
        frame_ref.end(|frame| {
            if let Some(tokens) = meter.tokens() {
                frame.used(tokens);
            }
            let mut report = meter.report();
            frame.set_executor(|| Executor::Endpoint(self.server(server)));
            let ended = ended.map(|ended| ended.map(|scores| self.cells(scores, &mut report)));
            frame.report(*call, report);
            match ended {
                Some(Ok(cells)) => frame.complete_many(*call, cells, times),
                Some(Err(RequestFailure { failure, others_up })) => {
                    if others_up {
                        frame.others_are_up();
                    }
                    frame.fail(*call, failure, times);
                }
                None => {}
            }
        });
    }

    /// Sends the requests of a program, one after the other, until it is judged.
    async fn run_program<'a>(
        &self,
        judge: &ProgramJudge,
        fleet: &Fleet,
        key: RequestKey,
        (frame_ref, call): &Call,
        samples: &[(usize, u32)],
        request: &(impl Fn(RequestBody) -> ScoreRequest<'a> + Sync),
    ) -> Result<Scores, RequestFailure> {
        // Programs have no prefix in common: each goes where there is room.
        let key = RequestKey { group_size: 1, ..key };
        let kept = self.programs.lock().take((key.own_batch, key.sample));
        let was_begun = kept.is_some();
        let (mut program, mut failed, bytes) = if let Some((program, failed, bytes)) = kept {
            (Program::Begun(program), failed, bytes)
        } else {
            let texts = self.bodies[0].text(frame_ref, samples).ok_or_else(|| broken(NO_TEXTS.to_owned()))?;
            let bytes = texts.len();
            (Program::New(texts), key.attempt.saturating_sub(1), bytes)
        };
        let (mut run, mut progressed, mut next) = (None, false, None);
        loop {
            match judge.next(program, run.take()).await {
                ProgramStep::Send { program: begun, body, name } => {
                    if let Some(next) = next.take() {
                        frame_ref.goes_on(self.permit(&next).await?);
                    }
                    match fleet.send(key, &request(body.into()), self.timeout).await {
                        Ok(scores) => {
                            (program, run) = (Program::Begun(begun), scores.run);
                            (failed, progressed, next) = (0, true, frame_ref.answered());
                        }
                        Err(RequestFailure { failure, others_up }) => {
                            failed = failed.saturating_add(1);
                            // A program without progress begins again, from its texts. One that
                            // finds no room does too, and its attempts go on: else it never ended.
                            let is_final = failure.answer.is_some_and(Answer::is_final);
                            // A throttled one has used up no attempt, and is kept in any case.
                            let counted = if failure.answer.is_some_and(Answer::is_later) { 0 } else { bytes };
                            let mut programs = self.programs.lock();
                            let has_room = counted == 0 || programs.has_room(counted);
                            let kept = (progressed || was_begun) && has_room && failure.retryable && !is_final;
                            let place = frame_ref.place(*call).filter(|_| kept);
                            let gone = place
                                .map(|(batch, sample)| programs.put(&batch, sample, (begun, failed, bytes), counted));
                            drop(programs);
                            drop(gone);
                            let progressed = progressed && has_room;
                            let failure = Failure { progressed, ..failure_of(&name, failed, failure) };
                            return Err(RequestFailure { failure, others_up });
                        }
                    }
                }
                ProgramStep::Judged { score, report } => {
                    return Ok(Scores { cells: vec![Cell::Value(score)], report, ..Scores::default() });
                }
                ProgramStep::Failed(reason) => return Err(broken(reason)),
            }
        }
    }

    /// Waits for the permit of a program's next request.
    async fn permit(&self, next: &NextRequest) -> Result<Permit, RequestFailure> {
        loop {
            let now_ns = self.clock.now_ns();
            match next.acquire(now_ns) {
                AcquireResult::Permit(permit) => return Ok(permit),
                AcquireResult::Refused(reason) => return Err(broken(reason)),
                AcquireResult::Wait { until_ns, .. } => {
                    self.clock.sleep_until_ns(until_ns.min(now_ns.saturating_add(LONGEST_WAIT_NS))).await;
                }
            }
        }
    }

    /// Returns the cells of an answer. Those of a rubric are not this call's: they are reported.
    fn cells(&self, scores: Scores, report: &mut Report) -> Vec<Cell> {
        report.merge(scores.report);
        if self.spec.criteria.is_none() {
            return scores.cells;
        }
        let score = |cell| if let Cell::Value(score) = cell { Extra::Number(score) } else { Extra::None };
        let reasons = scores.reasons.into_iter().chain(std::iter::repeat(None));
        let judgments = scores.cells.into_iter().zip(reasons).flat_map(|(cell, reason)| [score(cell), reason.into()]);
        report.add(0, JUDGMENTS, Extra::List(judgments.collect()));
        vec![Cell::Abstained]
    }

    /// The bodies and the parser of the requests in a slot.
    fn question(&self, slot: usize) -> (&Bodies, &ResponseParser) {
        let others = self.spec.criteria.as_ref().map_or(&[][..], |criteria| &criteria.others);
        match others.get(slot.wrapping_sub(1)) {
            Some((_, parser)) => (&self.bodies[slot], parser),
            None => (&self.bodies[0], &self.spec.parser),
        }
    }

    /// Returns the server of the last request.
    fn server(&self, sent: &Mutex<Arc<str>>) -> Arc<str> {
        let server = sent.lock().clone();
        if server.is_empty() { self.spec.endpoint.host().into() } else { server }
    }

    /// Drops requests whose calls were completed meanwhile, and their bodies; whether anything is
    /// here.
    pub fn drop_abandoned(&self) -> bool {
        let busy = self.bodies.iter().filter(|bodies| bodies.drop_ended()).count() > 0;
        let ended = self.programs.lock().take_ended();
        drop(ended);
        let kept = !self.programs.lock().is_empty() || busy;
        let (tasks, busy) = {
            let calls = self.calls.lock();
            let with_call = |task: &RequestTask| Some((task.call.clone()?, task.stop.clone()));
            let tasks: Vec<(Call, Arc<Notify>)> = calls.tasks().filter_map(with_call).collect();
            (tasks, calls.is_busy())
        };
        for ((frame_ref, call), stop) in tasks {
            if !frame_ref.is_open(call) {
                stop.notify_one();
            }
        }
        busy || kept
    }

    pub fn is_busy(&self) -> bool {
        self.calls.lock().is_busy() || self.keeps_repairs() || !self.programs.lock().is_empty()
    }

    /// Returns whether answers of calls that may be tried again are kept.
    pub fn keeps_repairs(&self) -> bool {
        self.bodies.iter().any(Bodies::keeps_repairs)
    }

    /// Snapshots of the calls in flight, for `dump()`,
    /// each with its server.
    pub fn in_flight(&self, now_ns: u64) -> Vec<(InFlightCall, String)> {
        let tasks: Vec<(Call, u64, Arc<str>)> = {
            let calls = self.calls.lock();
            let of = |task: &RequestTask| Some((task.call.clone()?, task.started_ns, task.server.lock().clone()));
            calls.tasks().filter_map(of).collect()
        };
        let snapshot = |((frame_ref, call), since_ns, server): &(Call, u64, Arc<str>)| {
            let server = if server.is_empty() { self.spec.endpoint.host() } else { server.to_string() };
            Some((frame_ref.in_flight(*call, now_ns.saturating_sub(*since_ns))?, server))
        };
        tasks.iter().filter_map(snapshot).collect()
    }

    /// The fleet, until the queue is closed.
    pub fn fleet(&self) -> Option<Arc<Fleet>> {
        self.calls.lock().fleet().cloned()
    }

    /// Ends all requests and closes the connections.
    pub fn close(&self) {
        let (tasks, waiting) = self.calls.lock().close();
        for task in tasks {
            task.abort();
        }
        drop(waiting);
    }

    pub fn is_gone(&self) -> bool {
        self.calls.lock().is_gone()
    }
}

/// A limiter is asked again after this time in any case.
const LONGEST_WAIT_NS: u64 = 50_000_000;
const NO_TEXTS: &str = "internal error: the texts of its request were not captured";

/// A failure that is not retried.
fn broken(reason: String) -> RequestFailure {
    RequestFailure { failure: Failure::error(reason), others_up: false }
}

/// Sends one request after the other, until no call waits.
async fn run_requests(guard: TaskGuard) {
    let queue = guard.queue.clone();
    while let Some((taken, samples)) = queue.take(guard.task) {
        let TakenCall { call, stop, fleet, waiting, server } = taken;
        let started_ns = queue.clock.now_ns();
        let meter = Meter::new(&queue.spec.tariff, queue.clock);
        let mut dropped = DroppedUsage { call: Some(&call), meter: &meter };
        let key = call.0.key(call.1, waiting);
        let (bodies, parser) = queue.question(call.0.slot);
        let second = || call.0.second_request();
        let request = |body| ScoreRequest {
            second: &second,
            server: &server,
            parser,
            body,
            samples: queue.spec.criteria.as_ref().map_or(samples.len(), |criteria| criteria.in_an_answer),
            meter: &meter,
            timeout: queue.timeout,
        };
        let asked = async {
            if let Some(judge) = &queue.spec.programs {
                // Not in the state of every request.
                return Box::pin(queue.run_program(judge, &fleet, key, &call, &samples, &request)).await;
            }
            match bodies.body(key, &call.0, &samples) {
                Some(body) => fleet.send(key, &request(body), queue.timeout).await,
                None => Err(broken(NO_TEXTS.to_owned())),
            }
        };
        let ended = tokio::select! {
            ended = asked => Some(ended),
            () = stop.notified() => None,
        };
        if let Some(ended) = &ended {
            bodies.keep_repair(&call.0, call.1, key, ended.is_ok(), &meter);
        }
        dropped.call = None;
        queue.complete(guard.task, &call, started_ns, ended, &server, &meter);
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

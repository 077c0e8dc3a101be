//! The queue of one compound function: units that wait, and those whose requests are under way.
//!
//! - At most `limit` units are in work, each a task; the oldest batch first, in order.
//! - Requests under way are bounded by their limiter (`permits`), not by units.
//! - A unit whose calls were all completed meanwhile is dropped, and its requests with it.
//! - Calls are completed with no lock held: that may push another frame.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, OnceLock};

use futures_util::future::BoxFuture;
use guerdon_core::batch::Batch;
use guerdon_core::clock::Clock;
use guerdon_core::function::FunctionId;
use guerdon_core::in_flight::InFlightCall;
use guerdon_core::limits::LimitWarning;
use guerdon_core::outcome::{Failure, Times};
use guerdon_core::report::Report;
use parking_lot::Mutex;
use tokio::runtime::Handle;
use tokio::sync::Notify;
use tokio::task::AbortHandle;

use crate::compound::function::CompoundFunction;
use crate::compound::permits::PermitQueue;
use crate::compound::unit::broken;
use crate::compound::unit::{Answered, Cells, Unit, UnitCall, UnitKey};
use crate::fleet::{Fleet, RequestKey};
use crate::in_flight::InFlightFrame;

/// Called with a function's index, what to warn of, and the reason.
pub type LimitListener = Box<dyn Fn(FunctionId, LimitWarning, &str) + Send + Sync>;

/// See the module.
pub struct CompoundQueue {
    pub spec: CompoundFunction,
    /// The function that asks: its columns hold the texts of the requests.
    pub function: FunctionId,
    pub limit: usize,
    pub clock: Clock,
    pub runtime: Handle,
    pub permits: Arc<PermitQueue>,
    pub limit_listener: Arc<OnceLock<LimitListener>>,
    pub drive: Drive,
    /// Notified when nothing is left after `close`.
    pub gone: Arc<Notify>,
    pub(super) state: Mutex<CompoundState>,
}

pub(super) struct CompoundState {
    units: BTreeMap<UnitKey, Unit>,
    /// Units that no task has taken. Retries are not in it: a unit is handed out once.
    waiting: BTreeSet<UnitKey>,
    tasks: BTreeMap<u64, UnitTask>,
    /// Requests under way, for `dump()`.
    requests: BTreeMap<u64, RequestInFlight>,
    last: u64,
    /// Taken by `close`.
    fleet: Option<Arc<Fleet>>,
}

#[derive(Default)]
struct UnitTask {
    unit: Option<UnitKey>,
    /// When its first request went out; 0 before.
    started_ns: u64,
    stop: Arc<Notify>,
    abort: Option<AbortHandle>,
}

struct RequestInFlight {
    unit: UnitKey,
    since_ns: u64,
    attempt: u16,
    member: usize,
    /// Server of the last request. Written by the request.
    server: Arc<Mutex<Arc<str>>>,
}

/// A unit that a task has taken.
pub struct TakenUnit {
    pub key: UnitKey,
    pub task: u64,
    /// One of its calls: what the requests are made of.
    pub call: UnitCall,
    /// The samples of the call, each with its share of the frame.
    pub samples: Vec<(usize, u32)>,
    /// Call that its requests belong to; those of one unit have a prefix in common.
    pub request_key: RequestKey,
    pub batch: Arc<Batch>,
    pub fleet: Arc<Fleet>,
    stop: Arc<Notify>,
}

/// OpenBatches on a unit until all of its columns are answered.
pub type Drive = fn(Arc<CompoundQueue>, Arc<TakenUnit>) -> BoxFuture<'static, ()>;

/// Frees the place of a task, however it ended.
struct UnitGuard {
    queue: Arc<CompoundQueue>,
    task: u64,
}

impl Drop for UnitGuard {
    fn drop(&mut self) {
        let unit = {
            let mut state = self.queue.state.lock();
            let unit = state.tasks.remove(&self.task).and_then(|task| task.unit);
            let unit = unit.and_then(|key| state.units.remove(&key));
            if state.is_gone() {
                self.queue.gone.notify_waiters();
            }
            unit
        };
        // Dropped in the middle, by `close` or a panic: its calls go back to the scheduler.
        for (frame_ref, _) in unit.iter().flat_map(Unit::calls) {
            frame_ref.end(|_| {});
        }
        self.queue.start();
    }
}

/// A request under way, until it is dropped.
pub struct RequestGuard<'a> {
    queue: &'a CompoundQueue,
    id: u64,
    /// Server of the last request.
    pub server: Arc<Mutex<Arc<str>>>,
}

impl Drop for RequestGuard<'_> {
    fn drop(&mut self) {
        self.queue.state.lock().requests.remove(&self.id);
    }
}

impl CompoundQueue {
    /// Returns an empty state.
    pub(super) fn state(fleet: Arc<Fleet>) -> Mutex<CompoundState> {
        Mutex::new(CompoundState {
            units: BTreeMap::new(),
            waiting: BTreeSet::new(),
            tasks: BTreeMap::new(),
            requests: BTreeMap::new(),
            last: 0,
            fleet: Some(fleet),
        })
    }

    /// Queues calls; gives them back if it is closed.
    pub fn push(self: &Arc<Self>, frame_ref: &Arc<InFlightFrame>) {
        let mut answered = Vec::new();
        for index in 0..frame_ref.calls {
            let Some((batch, first)) = frame_ref.place(index) else { continue };
            let key = (batch.id(), first);
            let call = (frame_ref.clone(), index);
            let mut state = self.state.lock();
            if state.fleet.is_none() {
                drop(state);
                frame_ref.end(|_| {});
                continue;
            }
            let CompoundState { units, waiting, .. } = &mut *state;
            let unit = units.entry(key).or_insert_with(|| Unit::new(batch, 1));
            if unit.task.is_none() {
                waiting.insert(key);
            }
            answered.extend(unit.add(0, call));
            if unit.is_done() {
                units.remove(&key);
            }
        }
        answered.into_iter().for_each(|(call, answer)| complete(&call, answer));
        self.start();
    }

    /// Starts as many tasks as may be under way.
    fn start(self: &Arc<Self>) {
        let begun: Vec<u64> = {
            let mut state = self.state.lock();
            if state.fleet.is_none() {
                return;
            }
            let idle = state.tasks.values().filter(|task| task.unit.is_none()).count();
            let wanted = state.waiting.len().saturating_sub(idle);
            let begin = wanted.min(self.limit.saturating_sub(state.tasks.len()));
            let first = state.last + 1;
            state.last += begin as u64;
            let begun = first..=state.last;
            state.tasks.extend(begun.clone().map(|task| (task, UnitTask::default())));
            begun.collect()
        };
        for task in begun {
            let spawned = self.runtime.spawn(run_units(UnitGuard { queue: self.clone(), task }));
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

    /// The next unit, for a task.
    fn take(&self, task: u64) -> Option<TakenUnit> {
        loop {
            let (key, leader, batch, fleet) = {
                let mut state = self.state.lock();
                let fleet = state.fleet.clone()?;
                let key = state.waiting.pop_first()?;
                let Some(unit) = state.units.get_mut(&key) else { continue };
                unit.task = Some(task);
                (key, unit.leader().cloned(), unit.batch.clone(), fleet)
            };
            // Made without the lock: looking at a call takes its frame's.
            let Some(call) = leader.filter(|(frame_ref, index)| frame_ref.is_open(*index)) else {
                self.abandon(key);
                continue;
            };
            let samples = call.0.samples(call.1);
            let stop = Arc::new(Notify::new());
            let mut state = self.state.lock();
            if let Some(task) = state.tasks.get_mut(&task) {
                (task.unit, task.started_ns, task.stop) = (Some(key), 0, stop.clone());
            }
            let waiting = state.waiting.len();
            drop(state);
            // Programs have no prefix in common: each goes where there is room.
            let request_key = RequestKey { group_size: 1, ..call.0.key(call.1, waiting) };
            return Some(TakenUnit { key, task, call, samples, request_key, batch, fleet, stop });
        }
    }

    /// Ends a unit without the call of the function that asks: nobody can answer the others.
    fn abandon(&self, key: UnitKey) {
        let Some(unit) = self.state.lock().units.remove(&key) else { return };
        let alone = unit.leader().is_some();
        for (place, (frame_ref, call)) in unit.calls().enumerate() {
            frame_ref.end(|frame| {
                if !alone || place > 0 {
                    frame.fail(
                        *call,
                        broken("the first criterion of its rubric has ended, and asks for all"),
                        Times::default(),
                    );
                }
            });
        }
    }

    /// Gives the calls of a unit back to the scheduler.
    fn remove(&self, key: UnitKey) {
        let unit = self.state.lock().units.remove(&key);
        for (frame_ref, _) in unit.iter().flat_map(Unit::calls) {
            frame_ref.end(|_| {});
        }
    }

    /// A request of a unit goes out.
    pub fn request(&self, unit: &TakenUnit, member: usize, attempt: u16) -> RequestGuard<'_> {
        let since_ns = self.clock.now_ns();
        let mut state = self.state.lock();
        state.last += 1;
        let id = state.last;
        let server: Arc<Mutex<Arc<str>>> = Arc::new(Mutex::new("".into()));
        state
            .requests
            .insert(id, RequestInFlight { unit: unit.key, since_ns, attempt, member, server: server.clone() });
        if let Some(task) = state.tasks.get_mut(&unit.task).filter(|task| task.started_ns == 0) {
            task.started_ns = since_ns;
        }
        RequestGuard { queue: self, id, server }
    }

    /// Answers a column of a unit.
    pub fn answer(&self, unit: &TakenUnit, column: usize, ended: Result<Cells, Failure>, report: Report) {
        let now_ns = self.clock.now_ns();
        let completed = {
            let mut state = self.state.lock();
            let started_ns = state.tasks.get(&unit.task).map_or(0, |task| task.started_ns);
            // Nothing ran where no request went out.
            let run_ns = if started_ns == 0 { 0 } else { now_ns.saturating_sub(started_ns) };
            let answered = Answered { ended, report, times: Times { started_ns, run_ns } };
            let Some(known) = state.units.get_mut(&unit.key) else { return };
            let completed = known.answer(column, answered);
            if known.is_done() {
                state.units.remove(&unit.key);
            }
            completed
        };
        if let Some((call, answered)) = completed {
            complete(&call, answered);
        }
    }

    /// Takes what a member's requests used for a unit that is given up: it counts for the member's
    /// column, or for another that still waits.
    pub fn report(&self, unit: &TakenUnit, member: usize, report: Report) {
        let call = self.state.lock().units.get(&unit.key).and_then(|known| known.waiting(member).cloned());
        let (frame_ref, call) = call.as_ref().unwrap_or(&unit.call);
        frame_ref.report(*call, report);
    }

    /// Drops units whose calls were completed meanwhile; whether any unit is here.
    pub fn drop_abandoned(&self) -> bool {
        let (under_way, left_over, orphans, busy) = {
            let state = self.state.lock();
            let under_way = |task: &UnitTask| {
                let unit = state.units.get(&task.unit?)?;
                Some((unit.batch.clone(), unit.calls().cloned().collect::<Vec<UnitCall>>(), task.stop.clone()))
            };
            let under_way: Vec<_> = state.tasks.values().filter_map(under_way).collect();
            let over = state.units.iter().filter(|(_, unit)| unit.is_answered() && unit.batch.is_done());
            let left_over: Vec<UnitKey> = over.map(|(key, _)| *key).collect();
            let orphan = |(key, unit): (&UnitKey, &Unit)| {
                let waits = unit.task.is_none() && unit.leader().is_none();
                (waits && unit.batch.cell(key.1, self.function).is_some()).then_some(*key)
            };
            let orphans: Vec<UnitKey> = state.units.iter().filter_map(orphan).collect();
            (under_way, left_over, orphans, state.is_busy())
        };
        orphans.into_iter().for_each(|key| self.abandon(key));
        for (batch, calls, stop) in under_way {
            let open = calls.iter().any(|(frame_ref, call)| frame_ref.is_open(*call));
            if batch.is_done() || (!open && !calls.is_empty()) {
                stop.notify_one();
            }
        }
        left_over.into_iter().for_each(|key| self.remove(key));
        busy
    }

    /// None once it is closed.
    pub fn fleet(&self) -> Option<Arc<Fleet>> {
        self.state.lock().fleet.clone()
    }

    pub fn is_busy(&self) -> bool {
        self.state.lock().is_busy()
    }

    /// Snapshots of the requests under way, for `dump()`.
    pub fn in_flight(&self, now_ns: u64) -> Vec<(InFlightCall, String)> {
        type RequestSnapshot = (UnitCall, u64, u16, usize, Arc<str>);
        let requests: Vec<RequestSnapshot> = {
            let state = self.state.lock();
            let request = |one: &RequestInFlight| {
                let call = state.units.get(&one.unit)?.calls().next()?.clone();
                Some((call, one.since_ns, one.attempt, one.member, one.server.lock().clone()))
            };
            state.requests.values().filter_map(request).collect()
        };
        let snapshot = |((frame_ref, call), since_ns, attempt, member, server): &RequestSnapshot| {
            let one = frame_ref.in_flight(*call, now_ns.saturating_sub(*since_ns))?;
            let own = || self.spec.members.get(*member).map(|one| one.endpoint.host());
            let server = if server.is_empty() { own()? } else { server.to_string() };
            Some((InFlightCall { attempt: *attempt, ..one }, server))
        };
        requests.iter().filter_map(snapshot).collect()
    }

    /// Ends all requests and closes the connections.
    pub fn close(&self) {
        let (units, tasks, fleet) = {
            let mut state = self.state.lock();
            let tasks: Vec<AbortHandle> = state.tasks.values().filter_map(|task| task.abort.clone()).collect();
            let waiting = std::mem::take(&mut state.waiting);
            let units: Vec<Unit> = waiting.iter().filter_map(|key| state.units.remove(key)).collect();
            (units, tasks, state.fleet.take())
        };
        for task in tasks {
            task.abort();
        }
        for (frame_ref, _) in units.iter().flat_map(Unit::calls) {
            frame_ref.end(|_| {});
        }
        drop(fleet);
    }

    pub fn is_gone(&self) -> bool {
        self.state.lock().is_gone()
    }
}

impl CompoundState {
    fn is_gone(&self) -> bool {
        self.fleet.is_none() && self.tasks.is_empty() && self.requests.is_empty()
    }

    fn is_busy(&self) -> bool {
        !self.tasks.is_empty() || !self.units.is_empty()
    }
}

/// Completes a call; nothing happens if the scheduler has.
fn complete((frame_ref, call): &UnitCall, Answered { ended, report, times }: Answered) {
    frame_ref.end(|frame| {
        frame.report(*call, report);
        match ended {
            Ok(cells) => frame.complete_many(*call, cells, times),
            Err(failure) => frame.fail(*call, failure, times),
        }
    });
}

/// OpenBatches on one unit after the other, until none waits.
async fn run_units(guard: UnitGuard) {
    let queue = guard.queue.clone();
    while let Some(unit) = queue.take(guard.task) {
        let unit = Arc::new(unit);
        tokio::select! {
            () = (queue.drive)(queue.clone(), unit.clone()) => {}
            () = unit.stop.notified() => {}
        }
        // The remaining columns were not answered: the scheduler has completed it.
        let left = {
            let mut state = queue.state.lock();
            if let Some(task) = state.tasks.get_mut(&guard.task) {
                task.unit = None;
            }
            let kept = state.units.get(&unit.key).is_some_and(Unit::is_answered);
            if kept { None } else { state.units.remove(&unit.key) }
        };
        for (frame_ref, _) in left.iter().flat_map(Unit::calls) {
            frame_ref.end(|_| {});
        }
    }
}

//! The lane of composite functions: it has no threads, and runs where member calls end. Scores of a
//! group are computed on a thread that may block.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::sync::{Arc, OnceLock};

use crate::batch::Batch;
use crate::clock::Clock;
use crate::compose::composite::{Cells, Composite, CompositeCall};
use crate::compose::criterion::Criterion;
use crate::compose::step::NextStep;
use crate::frame::{Frame, LaneOwner};
use crate::function::FunctionId;
use crate::lane::{CallsRun, CloseFuture, Lane, LaneWaker};
use crate::member_call::{MemberCall, MemberEnd};
use crate::sync::Mutex;

/// The most calls of a function at a time: enough for full calls of members that gather samples.
const MOST_CALLS: usize = 1024;

/// The longest time before its end at which a call that ends early ends.
const BEFORE_END_NS: u64 = 250_000_000;

/// A call: batch, function and first sample.
type CallKey = (u64, FunctionId, usize);

struct Running {
    frame: Frame,
    batch: Arc<Batch>,
    composite: Arc<Composite>,
    call: CompositeCall,
}

impl Running {
    /// Returns whether its member calls are needed: those of a rubric by any column that is open.
    fn is_needed(&self) -> bool {
        let Composite::Criterion(Criterion { columns, .. }) = &*self.composite else { return self.frame.is_open(0) };
        columns.iter().any(|column| self.batch.cell(self.frame.first(0), *column).is_none())
    }

    fn complete(self, clock: Clock, late: bool) {
        let Self { mut frame, composite, mut call, .. } = self;
        let (ended, report, record) = composite.result(&mut call, late);
        let times = call.times(clock.now_ns());
        frame.report(0, report);
        if let Some(json) = record {
            frame.record(0, json);
        }
        match ended {
            Ok(Cells::One(cell)) => frame.complete(0, cell, times),
            Ok(Cells::Each(cells)) => frame.complete_many(0, cells, times),
            Err(failure) => frame.fail(0, failure, times),
        }
    }
}

/// See the module.
pub struct ComposeLane {
    clock: Clock,
    /// By number; present for the functions of this lane.
    composites: Vec<Option<Arc<Composite>>>,
    waker: OnceLock<LaneWaker>,
    /// Calls whose members are under way; `None` once it is closed. Written by frames that come, by
    /// ends of member calls and by sweeps.
    running: Mutex<Option<BTreeMap<CallKey, Box<Running>>>>,
}

impl ComposeLane {
    #[must_use]
    pub fn new(clock: Clock, composites: Vec<Option<Composite>>) -> Self {
        let composites = composites.into_iter().map(|composite| composite.map(Arc::new)).collect();
        Self { clock, composites, waker: OnceLock::new(), running: Mutex::new(Some(BTreeMap::new())) }
    }

    fn engine(&self) -> Option<Arc<dyn LaneOwner>> {
        self.waker.get().and_then(LaneWaker::owner)
    }

    fn ask(&self, batch: &Arc<Batch>, NextStep { call, scores, .. }: &NextStep) {
        if !call.is_empty()
            && let Some(engine) = self.engine()
        {
            engine.call_members(batch, call, scores);
        }
    }

    fn give_up(&self, batch: &Arc<Batch>, calls: &[MemberCall]) {
        if !calls.is_empty()
            && let Some(engine) = self.engine()
        {
            engine.give_up_members(batch, calls);
        }
    }

    /// Gives up what a call still waits for.
    fn give_up_open(&self, running: &Running) {
        self.give_up(&running.batch, &running.call.open(&running.composite));
    }

    /// Passes the result of a member call on to a call, if that is running.
    fn pass_on(&self, key: CallKey, end: Cow<'_, MemberEnd>) {
        let (step, running) = {
            let mut all = self.running.lock();
            let Some(all) = all.as_mut() else { return };
            let Some(running) = all.get_mut(&key) else { return };
            // A column that was swept may have waited for the end of another one's call.
            let step =
                if running.is_needed() { running.composite.ended(&mut running.call, end) } else { NextStep::end() };
            let ended = if step.is_end { all.remove(&key) } else { None };
            match (ended, all.get(&key)) {
                (Some(ended), _) => (step, Ok(ended)),
                (None, Some(running)) if !is_requested(all, key, running) => (step, Err(running.batch.clone())),
                _ => return,
            }
        };
        match running {
            Err(batch) => {
                self.give_up(&batch, &step.give_up);
                self.ask(&batch, &step);
            }
            Ok(running) => {
                self.give_up(&running.batch, &step.give_up);
                self.end(running, false);
            }
        }
    }

    /// Has a call end shortly before its time is up. If the time is short, most of it is for member
    /// calls.
    fn end_in_time(&self, (id, function, first): CallKey, batch: &Batch) {
        let Some(ends_ns) = batch.ends_ns(first, function) else { return };
        let before_ns = BEFORE_END_NS.min(ends_ns.saturating_sub(self.clock.now_ns()) / 10);
        if let Some(engine) = self.engine() {
            engine.wake_at((id, function, first), ends_ns.saturating_sub(before_ns));
        }
    }

    /// Ends a call that was taken out; `late`: its time is up.
    fn end(&self, running: Box<Running>, late: bool) {
        self.give_up_open(&running);
        if !running.frame.is_open(0) {
            return; // it was swept, and another column needed its member call
        }
        let (clock, computes) = (self.clock, running.composite.ends_early());
        match if computes { self.engine() } else { None } {
            Some(engine) => engine.compute(Box::new(move || running.complete(clock, late))),
            None => running.complete(clock, late),
        }
    }
}

/// Returns whether another column of the same rubric requests the member call that this one waits
/// for.
fn is_requested(all: &BTreeMap<CallKey, Box<Running>>, (id, function, first): CallKey, running: &Running) -> bool {
    let Composite::Criterion(Criterion { columns, .. }) = &*running.composite else { return false };
    let slot = running.call.slot();
    let column = slot.and_then(|slot| columns.get(slot)).filter(|column| **column != function);
    column.and_then(|column| all.get(&(id, *column, first))).is_some_and(|other| other.call.slot() == slot)
}

impl Lane for ComposeLane {
    fn attach(&self, waker: LaneWaker) {
        let _ = self.waker.set(waker);
    }

    fn room(&self, _function: FunctionId) -> usize {
        MOST_CALLS
    }

    fn parallelism(&self, _function: FunctionId) -> usize {
        MOST_CALLS
    }

    fn pool(&self, function: FunctionId) -> usize {
        function
    }

    fn frame_calls(&self, _function: FunctionId) -> usize {
        1
    }

    fn calls_run(&self, _function: FunctionId) -> CallsRun {
        CallsRun::AtMost(MOST_CALLS)
    }

    fn waits_on_purpose(&self, _function: FunctionId) -> bool {
        true // for member calls, which other lanes have
    }

    fn run(&self, frame: Frame) {
        let function = frame.function_id();
        let Some(Some(composite)) = self.composites.get(function).filter(|_| !frame.is_empty()) else { return };
        let (batch, first) = (frame.batch().clone(), frame.first(0));
        let key = (batch.id(), function, first);
        let (call, step) = composite.begin(first, frame.size(0));
        let running = Box::new(Running { frame, batch: batch.clone(), composite: composite.clone(), call });
        if step.is_end {
            self.end(running, false);
            return;
        }
        let requested = match self.running.lock().as_mut() {
            Some(all) => {
                let requested = is_requested(all, key, &running);
                all.insert(key, running);
                requested
            }
            None => return, // and gives the call back, without the lock
        };
        if composite.ends_early() {
            self.end_in_time(key, &batch);
        }
        if batch.cell(first, function).is_some() {
            self.calls_swept(); // the sweep may have come before the call was added
        }
        if !requested {
            self.ask(&batch, &step);
        }
    }

    fn member_ended(&self, end: MemberEnd) {
        let (id, function, first) = end.owner;
        let composite = self.composites.get(function).and_then(Option::as_ref);
        let Some(Composite::Criterion(Criterion { columns, .. })) = composite.map(|composite| &**composite) else {
            self.pass_on(end.owner, Cow::Owned(end));
            return;
        };
        for column in &**columns {
            self.pass_on((id, *column, first), Cow::Borrowed(&end));
        }
    }

    fn woken(&self, key: CallKey) {
        let ended = self.running.lock().as_mut().and_then(|all| all.remove(&key));
        if let Some(running) = ended {
            self.end(running, true);
        }
    }

    fn calls_swept(&self) {
        let swept: Vec<Box<Running>> = {
            let mut running = self.running.lock();
            let Some(running) = running.as_mut() else { return };
            let of = running.iter().filter(|(_, one)| !one.is_needed());
            let keys: Vec<CallKey> = of.map(|(key, _)| *key).collect();
            keys.into_iter().filter_map(|key| running.remove(&key)).collect()
        };
        swept.iter().for_each(|running| self.give_up_open(running));
    }

    fn close(&self) -> CloseFuture {
        let left = self.running.lock().take();
        drop(left);
        Box::pin(async {})
    }
}

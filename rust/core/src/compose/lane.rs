//! The lane of composite functions: it has no threads, and runs where member calls end.

use std::collections::BTreeMap;
use std::sync::{Arc, OnceLock};

use crate::batch::Batch;
use crate::clock::Clock;
use crate::compose::call::{Composite, CompositeCall, NextStep};
use crate::frame::Frame;
use crate::function::FunctionId;
use crate::lane::{CallsRun, CloseFuture, Lane, LaneWaker};
use crate::member_call::{MemberCall, MemberEnd};
use crate::sync::Mutex;

/// The most calls of a function at a time: enough for full calls of members that gather samples.
const MOST_CALLS: usize = 1024;

/// A call: batch, function and sample.
type CallKey = (u64, FunctionId, usize);

struct Running {
    frame: Frame,
    batch: Arc<Batch>,
    call: CompositeCall,
}

/// See the module.
pub struct ComposeLane {
    clock: Clock,
    /// By number; present for the functions of this lane.
    composites: Vec<Option<Composite>>,
    waker: OnceLock<LaneWaker>,
    /// Calls whose members are under way; `None` once it is closed. Written by frames that come, by
    /// ends of member calls and by sweeps.
    running: Mutex<Option<BTreeMap<CallKey, Running>>>,
}

impl ComposeLane {
    #[must_use]
    pub fn new(clock: Clock, composites: Vec<Option<Composite>>) -> Self {
        Self { clock, composites, waker: OnceLock::new(), running: Mutex::new(Some(BTreeMap::new())) }
    }

    fn ask(&self, batch: &Arc<Batch>, (_, function, sample): CallKey, calls: &[MemberCall]) {
        if let Some(engine) = self.waker.get().and_then(LaneWaker::owner) {
            engine.call_members(batch, function, sample, calls);
        }
    }

    /// Gives up what a call still waits for.
    fn give_up(&self, (_, _, sample): CallKey, running: &Running) {
        let calls = running.call.open();
        if let Some(engine) = self.waker.get().and_then(LaneWaker::owner).filter(|_| !calls.is_empty()) {
            engine.give_up_members(&running.batch, sample, &calls);
        }
    }

    /// Takes out the calls that were ended from outside, among these.
    fn drop_swept(&self, only: Option<CallKey>) {
        let swept: Vec<(CallKey, Running)> = {
            let mut running = self.running.lock();
            let Some(running) = running.as_mut() else { return };
            let of = |(key, one): (&CallKey, &Running)| (!one.frame.is_open(0)).then_some(*key);
            let keys: Vec<CallKey> = match only {
                Some(key) => running.get_key_value(&key).and_then(of).into_iter().collect(),
                None => running.iter().filter_map(of).collect(),
            };
            keys.into_iter().filter_map(|key| Some((key, running.remove(&key)?))).collect()
        };
        swept.iter().for_each(|(key, running)| self.give_up(*key, running));
    }
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
        let (batch, sample) = (frame.batch().clone(), frame.first(0));
        let key = (batch.id(), function, sample);
        let (call, calls) = composite.begin();
        let running = Running { frame, batch: batch.clone(), call };
        let closed = match self.running.lock().as_mut() {
            Some(all) => all.insert(key, running),
            None => Some(running),
        };
        if closed.is_some() {
            return;
        }
        self.ask(&batch, key, &calls);
        // A sweep may have come before the member calls.
        self.drop_swept(Some(key));
    }

    fn member_ended(&self, end: MemberEnd) {
        let key = end.owner;
        let Some(Some(composite)) = self.composites.get(key.1) else { return };
        let (step, ended) = {
            let mut all = self.running.lock();
            let Some(running) = all.as_mut().and_then(|all| all.get_mut(&key)) else { return };
            let step = composite.ended(&mut running.call, end);
            let batch = running.batch.clone();
            let ended = if step.is_end() { all.as_mut().and_then(|all| all.remove(&key)) } else { None };
            (step, ended.ok_or(batch))
        };
        match (step, ended) {
            (NextStep::Call(calls), Err(batch)) => {
                self.ask(&batch, key, &calls);
                self.drop_swept(Some(key));
            }
            (NextStep::End, Ok(mut running)) => {
                self.give_up(key, &running);
                let (ended, report, record) = composite.result(&running.call);
                let times = running.call.times(self.clock.now_ns());
                running.frame.report(0, report);
                if let Some(json) = record {
                    running.frame.record(0, json);
                }
                match ended {
                    Ok(cell) => running.frame.complete(0, cell, times),
                    Err(failure) => running.frame.fail(0, failure, times),
                }
            }
            _ => {}
        }
    }

    fn calls_swept(&self) {
        self.drop_swept(None);
    }

    fn close(&self) -> CloseFuture {
        let left = self.running.lock().take();
        drop(left);
        Box::pin(async {})
    }
}

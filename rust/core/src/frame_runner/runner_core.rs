//! State that the frames of a runner share, and the hand-out of their pieces to the lanes.
//!
//! One thread at a time hands pieces out, as in the scheduler. It stops only after a search under
//! the lock found nothing, so a thread that finds it at work need not search.

use std::collections::BTreeMap;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use tokio::runtime::Handle;

use super::event::{FrameEvent, FrameListener};
use super::hosted_frame::HostedFrame;
use super::hosting::{HostedCalls, HostedOwner, Hosting};
use super::piece_queue::{Piece, PieceQueue};
use crate::call::{Call, CallKind};
use crate::clock::Clock;
use crate::frame::LaneOwner;
use crate::function::{Function, FunctionId};
use crate::lane::{CallsRun, Lane};
use crate::observer::Telemetry;
use crate::outcome::Note;
use crate::sync::{AtomicU64, Mutex, Ordering};

/// Held by the thread that hands out pieces. A panic drops it, so that the next thread can go on.
struct HandingOut<'a>(&'a RunnerCore);

impl Drop for HandingOut<'_> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            self.0.queue.lock().pumping = false;
        }
    }
}

pub(super) struct RunnerCore {
    pub runtime: Handle,
    pub clock: Clock,
    /// The functions with the rules of this process: gates, groups' scores and caches are the
    /// driver's.
    pub functions: Arc<[Function]>,
    /// The functions with the rules of their `finish_group` calls.
    pub finishing: Arc<[Function]>,
    pub lanes: Vec<Arc<dyn Lane>>,
    pub listener: Arc<dyn FrameListener>,
    /// The last number given to a frame for the lanes, and to its batch.
    last_frame: AtomicU64,
    last_batch: AtomicU64,
    queue: Mutex<PieceQueue>,
}

impl RunnerCore {
    pub(super) fn new(
        runtime: Handle,
        clock: Clock,
        functions: Vec<Function>,
        lanes: Vec<Arc<dyn Lane>>,
        listener: Arc<dyn FrameListener>,
    ) -> Self {
        let plain = |function: &Function| Function { run_if: None, pure: false, cache: None, ..function.clone() };
        let scoring = functions.iter().map(|function| Function { finish: false, ..plain(function) });
        Self {
            runtime,
            clock,
            functions: scoring.collect(),
            finishing: functions.iter().map(plain).collect(),
            lanes,
            listener,
            last_frame: AtomicU64::new(0),
            last_batch: AtomicU64::new(0),
            queue: Mutex::default(),
        }
    }

    fn lane(&self, hosted: &Hosting) -> &Arc<dyn Lane> {
        &self.lanes[self.functions[hosted.function].lane]
    }

    pub(super) fn submit(self: &Arc<Self>, frame: HostedFrame) -> Result<(), String> {
        let id = frame.id;
        let functions = if frame.kind == CallKind::Finish { &self.finishing } else { &self.functions };
        let batch = self.last_batch.fetch_add(1, Ordering::Relaxed) + 1;
        let (hosted, calls) = Hosting::new(self.clone(), batch, self.clock, functions, frame)?;
        let hosted = Arc::new(hosted);
        let pieces = self.pieces(&hosted, calls, false);
        {
            let mut queue = self.queue.lock();
            if queue.closed {
                return Err("a frame after the end".to_owned());
            }
            if !queue.add(&hosted, pieces) {
                return Err(format!("frame {id} twice"));
            }
        }
        self.hand_out(usize::MAX);
        Ok(())
    }

    /// Cuts calls into pieces of the lane's size. Calls that came back from a lane are spread over
    /// workers.
    fn pieces(&self, hosted: &Hosting, calls: Vec<Call>, again: bool) -> Vec<Vec<Call>> {
        if hosted.is_one_call() {
            return vec![calls];
        }
        let (function, lane) = (&self.functions[hosted.function], self.lane(hosted));
        let mut most = lane.frame_calls(hosted.function);
        let in_turn = lane.calls_run(hosted.function) == CallsRun::InTurn;
        if again && in_turn && function.policy.concurrency.is_none() {
            most = most.min(calls.len().div_ceil(lane.parallelism(hosted.function).max(2)));
        }
        if hosted.alone {
            most = 1;
        }
        calls.chunks(most.max(1)).map(<[Call]>::to_vec).collect()
    }

    pub(super) fn take_back(&self, session: u64, frame: u64) {
        let (hosted, calls, pieces) = {
            let mut queue = self.queue.lock();
            let Some(hosted) = queue.get(session, frame) else { return };
            let (calls, pieces) = queue.take_waiting(&hosted);
            (hosted, calls, pieces)
        };
        let open: Vec<usize> = hosted.close(calls);
        if !open.is_empty() {
            self.tell(&hosted, FrameEvent::GivenBack(open));
        }
        // Subtracted only now: otherwise, if a lane ended the last piece meanwhile, `Ended` would
        // be reported before `GivenBack`.
        if pieces > 0 && self.queue.lock().piece_ended(&hosted, pieces) {
            self.tell(&hosted, FrameEvent::Ended);
        }
    }

    pub(super) fn sweep(self: &Arc<Self>, session: u64, frame: u64, calls: &[usize]) {
        let Some(hosted) = self.queue.lock().get(session, frame) else { return };
        hosted.sweep(calls.iter().copied());
        self.drop_swept(&hosted);
    }

    /// Drops waiting pieces none of whose calls is open.
    fn drop_swept(self: &Arc<Self>, hosted: &Arc<Hosting>) {
        let ended = {
            let mut queue = self.queue.lock();
            let (mut calls, pieces) = queue.take_waiting(hosted);
            calls.retain(|call| hosted.is_open(call));
            let left = if calls.is_empty() { Vec::new() } else { self.pieces(hosted, calls, false) };
            queue.put_back(hosted, left);
            queue.piece_ended(hosted, pieces)
        };
        if ended {
            self.tell(hosted, FrameEvent::Ended);
        }
    }

    pub(super) fn end_session(self: &Arc<Self>, session: u64) {
        let frames = self.queue.lock().frames_of(Some(session));
        for hosted in frames {
            hosted.sweep(0..hosted.calls());
            self.drop_swept(&hosted);
        }
    }

    pub(super) fn frames(&self) -> usize {
        self.queue.lock().frames()
    }

    pub(super) fn calls_of(&self, session: u64) -> BTreeMap<u64, HostedCalls> {
        let frames = self.queue.lock().frames_of(Some(session));
        frames.into_iter().map(|hosted| (hosted.batch_id(), HostedCalls(hosted))).collect()
    }

    pub(super) fn close(self: &Arc<Self>) {
        let frames = {
            let mut queue = self.queue.lock();
            queue.closed = true;
            queue.frames_of(None)
        };
        for hosted in frames {
            hosted.sweep(0..hosted.calls());
            self.drop_swept(&hosted);
        }
    }

    /// Returns the next piece for a lane with room.
    fn next(&self, queue: &mut PieceQueue) -> Option<(Piece, bool)> {
        // Each driver keeps the function's limit by itself; here it bounds the calls of all drivers
        // together.
        let full = |(id, function): (FunctionId, &Function)| {
            let in_turn = self.lanes[function.lane].calls_run(id) == CallsRun::InTurn;
            in_turn && function.policy.concurrency.is_some_and(|most| queue.with_lanes(id) >= most)
        };
        let mut free: Vec<Option<bool>> =
            self.functions.iter().enumerate().map(|one| full(one).then_some(false)).collect();
        queue.next(|function| {
            *free[function].get_or_insert_with(|| self.lanes[self.functions[function].lane].room(function) > 0)
        })
    }

    /// Hands out at most `most` pieces; the rest is handed out on the runtime.
    pub(super) fn hand_out(self: &Arc<Self>, most: usize) {
        {
            let mut queue = self.queue.lock();
            if queue.pumping {
                return;
            }
            queue.pumping = true;
        }
        let _handing_out = HandingOut(self);
        let mut handed_out = 0;
        loop {
            let (work, first) = {
                let mut queue = self.queue.lock();
                if handed_out == most {
                    queue.pumping = false;
                    drop(queue);
                    let this = self.clone();
                    self.runtime.spawn(async move { this.hand_out(usize::MAX) });
                    return;
                }
                let next = if queue.closed { None } else { self.next(&mut queue) };
                let Some(next) = next else {
                    queue.pumping = false;
                    return;
                };
                next
            };
            if first {
                self.tell(&work.hosted, FrameEvent::Begun);
            }
            self.run(work);
            handed_out += 1;
        }
    }

    fn run(self: &Arc<Self>, work: Piece) {
        let Piece { hosted, calls } = work;
        let lane = self.lane(&hosted);
        let number = self.last_frame.fetch_add(1, Ordering::Relaxed) + 1;
        // A lane that panics must not be handed the same calls again and again.
        let run = || lane.run(hosted.frame(self.clock, number, calls));
        if catch_unwind(AssertUnwindSafe(run)).is_err() {
            hosted.break_off(Note { reason: "its lane panicked".to_owned(), traceback: None });
        }
    }
}

impl LaneOwner for RunnerCore {
    fn tracer(&self) -> Option<&Arc<dyn Telemetry>> {
        None
    }

    fn find_work(self: Arc<Self>, brief: bool) {
        self.hand_out(if brief { 1 } else { usize::MAX });
    }
}

impl HostedOwner for RunnerCore {
    fn tell(&self, hosted: &Hosting, event: FrameEvent) {
        self.listener.tell(hosted.session, hosted.id, event);
    }

    fn returned(self: Arc<Self>, hosted: &Arc<Hosting>, mut calls: Vec<Call>, piece_ended: bool) {
        calls.retain(|call| hosted.is_open(call));
        let pieces = if calls.is_empty() { Vec::new() } else { self.pieces(hosted, calls, true) };
        let ended = {
            let mut queue = self.queue.lock();
            if piece_ended {
                queue.left_lane(hosted.function);
            }
            if !queue.closed {
                queue.put_back(hosted, pieces);
            }
            piece_ended && queue.piece_ended(hosted, 1)
        };
        if ended {
            self.tell(hosted, FrameEvent::Ended);
        }
    }
}

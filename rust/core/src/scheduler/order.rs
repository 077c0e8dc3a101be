//! The order of work: which calls go to a lane next.
//!
//! - Oldest batch first. Within a batch, functions of one pool go through the groups together, in a
//!   window of a few frames a worker. A function at its limit delays no other.
//! - Inside the window, functions whose outcomes gates wait for go first, then the longest expected
//!   call. A function that was passed over as often as there are functions waiting goes next.
//! - A frame is sized by expected cost. A lane that runs calls side by side has the running calls
//!   and the ones due within `FRAME_NS`. Cheap calls, which never wait, go to as many workers as
//!   keep the cores busy.

use std::cmp::Reverse;

use crate::batch::Batch;
use crate::call::Call;
use crate::function::{FunctionId, Shape};
use crate::lane::{CallsRun, Lane};
use crate::scheduler::queue::{Queue, Work};

/// Work that a frame should hold, in nanoseconds: long compared with a round trip to a worker,
/// short compared with a group.
const FRAME_NS: u64 = 4_000_000;
/// Least work of a frame, even if other workers get none then: it costs more than handing the frame
/// out and taking it back.
const LEAST_NS: u64 = 100_000;
/// Most time that a cheap call takes: too little for a sleep or a server's answer. One worker a
/// core runs all such calls that the engine can hand out.
const CHEAP_NS: u64 = 20_000;
/// Calls a frame before their cost was measured.
const FRAME_UNKNOWN: usize = 8;
/// The most calls of a frame, because it is made under the scheduler's lock.
const MOST_CALLS: usize = 1 << 14;
/// Frames a worker by which a function may be ahead of another.
const WINDOW_FRAMES: usize = 4;

/// Expected run time of one call of a function.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Estimate(Option<u64>);

impl Estimate {
    /// Updates the estimate with a frame's calls; recent calls weigh most.
    pub(crate) fn learn(&mut self, run_ns: u64, calls: u64) {
        let Some(mean) = run_ns.checked_div(calls) else {
            return;
        };
        self.0 = Some(
            self.0.map_or(mean, |known| (known.saturating_mul(7) / 10).saturating_add(mean.saturating_mul(3) / 10)),
        );
    }

    fn frame_calls(self) -> usize {
        self.0.map_or(FRAME_UNKNOWN, |ns| usize::try_from(FRAME_NS / ns.max(1)).unwrap_or(usize::MAX).max(1))
    }

    /// Least number of calls of a frame.
    fn least_calls(self) -> usize {
        self.0.map_or(1, |ns| usize::try_from(LEAST_NS / ns.max(1)).unwrap_or(usize::MAX).max(1))
    }

    pub(crate) fn is_cheap(self) -> bool {
        self.0.is_some_and(|ns| ns <= CHEAP_NS)
    }

    /// For ordering: a function that never ran comes first, because its calls may be the longest.
    fn expected_ns(self) -> u64 {
        self.0.unwrap_or(u64::MAX)
    }
}

/// Number of a function's calls on a lane that runs them side by side.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ConcurrentCalls {
    /// Number of calls that run at a time.
    width: usize,
    /// Number of calls that wait for the places that become free.
    ahead: usize,
}

impl ConcurrentCalls {
    pub(crate) fn new(width: usize, estimate: Estimate) -> Self {
        let width = width.max(1);
        // Calls that never wait run one after the other, even in a lane that runs calls side by
        // side.
        let ahead = estimate.0.map_or(width / FRAME_UNKNOWN, |ns| {
            let starts = usize::try_from((width as u64).saturating_mul(FRAME_NS) / ns.max(1)).unwrap_or(usize::MAX);
            starts.min(width.max(estimate.frame_calls()))
        });
        Self { width, ahead: ahead.clamp(1, MOST_CALLS) }
    }

    /// Returns whether the function gets another frame in addition to `calls` calls.
    pub(crate) const fn has_room(self, calls: usize) -> bool {
        calls <= self.width.saturating_add(self.ahead / 2)
    }

    /// Returns the number of calls that the function gets in addition to `calls`.
    pub(crate) const fn room(self, calls: usize) -> usize {
        self.width.saturating_add(self.ahead).saturating_sub(calls)
    }

    /// Number of ended calls that a frame reports together: few enough that the lane's waiting
    /// calls are not used up before.
    pub(crate) fn report_every(self) -> usize {
        (self.ahead / 4).max(1)
    }
}

/// Size of the next frame of a function.
#[derive(Clone, Copy, Debug)]
pub(crate) enum FrameSize {
    /// The calls run one after the other, on one of `parallelism` workers, which should end
    /// together.
    InTurn { estimate: Estimate, most: usize, parallelism: usize },
    /// The calls run side by side.
    AtMost(usize),
}

impl FrameSize {
    /// Number of calls in the next frame, of `remaining` calls.
    fn of(self, remaining: usize) -> usize {
        match self {
            Self::InTurn { most: usize::MAX, .. } => remaining.min(MOST_CALLS),
            Self::InTurn { estimate, most, parallelism } => {
                let slice = if parallelism > 1 { remaining.div_ceil(parallelism.saturating_mul(2)) } else { remaining };
                estimate.frame_calls().min(most).min(slice.max(estimate.least_calls())).clamp(1, MOST_CALLS)
            }
            Self::AtMost(most) => most.min(remaining).clamp(1, MOST_CALLS),
        }
    }

    /// Spreads calls that were taken back from behind a slow call over more workers, so that the
    /// next slow call holds up fewer of them.
    fn spread_out(self) -> Self {
        match self {
            Self::InTurn { estimate, most, parallelism } => {
                Self::InTurn { estimate, most, parallelism: parallelism.max(2) }
            }
            Self::AtMost(_) => self,
        }
    }
}

/// A function that has calls waiting and may get another frame.
struct Candidate {
    function: FunctionId,
    /// The lane and the pool in it.
    pool: (usize, usize),
    position: usize,
    window: usize,
    /// Length of the longest chain of functions that wait for its outcomes (`dependents::heights`).
    height: usize,
    expected_ns: u64,
}

/// Returns the function whose calls go next in this batch. `free` is true for functions that may
/// get another frame, `waits` for functions whose queued samples wait for more.
pub(crate) fn choose<'a>(
    work: &mut Work,
    estimates: &[Estimate],
    heights: &[usize],
    lane_of: impl Fn(FunctionId) -> &'a dyn Lane,
    free: impl Fn(FunctionId) -> bool,
    waits: impl Fn(FunctionId) -> bool,
) -> Option<FunctionId> {
    let samples = work.submitted();
    let mut waiting = Vec::with_capacity(work.queues.len());
    for (function, queue) in work.queues.iter().enumerate() {
        if queue.is_ready(samples) && free(function) && !waits(function) {
            let lane = lane_of(function);
            let calls = match work.batch.functions()[function].gather {
                Some(gather) => gather.max_size,
                None => match lane.calls_run(function) {
                    CallsRun::Concurrent => lane.frame_calls(function),
                    CallsRun::AtMost(width) => width,
                    CallsRun::InTurn => {
                        let most = lane.frame_calls(function);
                        FrameSize::InTurn { estimate: estimates[function], most, parallelism: 1 }.of(usize::MAX)
                    }
                },
            };
            waiting.push(Candidate {
                function,
                pool: (work.batch.functions()[function].lane, lane.pool(function)),
                position: queue.position(samples),
                window: lane.parallelism(function).max(1).saturating_mul(WINDOW_FRAMES).saturating_mul(calls),
                height: heights[function],
                expected_ns: estimates[function].expected_ns(),
            });
        }
    }
    let in_window = |candidate: &Candidate| {
        let behind = waiting.iter().filter(|other| other.pool == candidate.pool).map(|other| other.position).min();
        candidate.position <= behind.unwrap_or(0).saturating_add(candidate.window)
    };
    let mut rivals: Vec<&Candidate> = waiting.iter().filter(|one| in_window(one)).collect();
    let pool = rivals.first()?.pool;
    rivals.retain(|rival| rival.pool == pool);
    let overdue = rivals.iter().find(|rival| work.queues[rival.function].passed_over >= rivals.len());
    let longest = || rivals.iter().max_by_key(|rival| (rival.height, rival.expected_ns, Reverse(rival.position)));
    let chosen = overdue.or_else(longest)?.function;
    for rival in &rivals {
        let queue = &mut work.queues[rival.function];
        queue.passed_over = if rival.function == chosen { 0 } else { queue.passed_over + 1 };
    }
    Some(chosen)
}

/// Takes the calls of the next frame from a queue that is ready, and returns whether the frame must
/// run alone. If `fresh_first` is set, calls that have not failed come before those that have.
pub(crate) fn take(
    queue: &mut Queue,
    batch: &Batch,
    function: FunctionId,
    lane: &dyn Lane,
    size: FrameSize,
    fresh_first: bool,
) -> (Vec<Call>, bool) {
    let spec = &batch.functions()[function];
    let span = spec.span(batch.samples(), batch.group_size()).max(1);
    let mut room = lane.frame_bytes();
    let payload = if room == usize::MAX { None } else { batch.payload() };
    let mut fits = |call: &Call, taken: usize| {
        // A batch call is alone in its frame, whatever its size.
        let covered = if room == usize::MAX || spec.shape == Shape::Batch {
            0
        } else if call.finish {
            batch.group_size()
        } else {
            span
        };
        let samples = call.first..call.first + covered;
        let bytes =
            payload.as_ref().map_or(0, |payload| samples.map(|sample| payload.bytes(function, sample as u32)).sum());
        let fits = taken == 0 || bytes <= room;
        room = room.saturating_sub(bytes);
        fits
    };
    let mut calls = Vec::new();
    if let Some(head) = queue.returned.front().copied() {
        if head.suspect {
            queue.returned.pop_front();
            return (vec![head], true);
        }
        let size = size.spread_out().of(queue.returned.len());
        while let Some(call) = queue.returned.front().copied() {
            if calls.len() == size || call.suspect || call.finish != head.finish || !fits(&call, calls.len()) {
                break;
            }
            queue.returned.pop_front();
            calls.push(call);
        }
        return (calls, spec.isolated);
    }
    let samples = if batch.is_streamed() { 0 } else { batch.samples() };
    if let Some(call) = queue.take_retried(samples, fresh_first) {
        return (vec![call], spec.isolated);
    }
    let remaining = queue.arrived.len() + samples.saturating_sub(queue.cursor).div_ceil(span);
    let size = size.of(remaining);
    calls.reserve(size.min(remaining));
    while calls.len() < size {
        let call = match queue.arrived.front() {
            Some(call) => *call,
            None if queue.cursor < samples => Call::fresh(queue.cursor),
            None => break,
        };
        if !fits(&call, calls.len()) {
            break;
        }
        if queue.arrived.pop_front().is_none() {
            queue.cursor += span;
        }
        calls.push(call);
    }
    queue.handed_out += calls.len();
    (calls, spec.isolated)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Calls in the next frame of a function whose calls take so long, `remaining` being left.
    fn calls(ns: u64, parallelism: usize, remaining: usize) -> usize {
        FrameSize::InTurn { estimate: Estimate(Some(ns)), most: 64, parallelism }.of(remaining)
    }

    #[test]
    fn the_end_of_a_batch_is_shared_out() {
        assert_eq!(calls(20_000, 4, 64), 8, "one of four workers gets no more of 64");
        assert_eq!(calls(200_000, 64, 64), 1);
    }

    #[test]
    fn a_frame_holds_100_us_of_work_however_many_workers_there_are() {
        assert_eq!(calls(4_000, 64, 256), 25);
        assert_eq!(calls(4_000, 64, 30), 25);
        assert_eq!(calls(200, 192, 4096), 64, "as many as the lane takes");
    }
}

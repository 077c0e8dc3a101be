//! Interface for the thread of an event loop: it takes work here and ends its calls.

use std::os::fd::BorrowedFd;
use std::sync::Arc;

use guerdon_core::function::FunctionId;
use guerdon_core::outcome::Times;
use guerdon_core::wake::Wake;

use crate::asyncio_lane::call_timeouts::Overdue;
use crate::asyncio_lane::event_loop::EventLoop;
use crate::asyncio_lane::heartbeat::Heartbeat;
use crate::asyncio_lane::in_flight::{CallsInFlight, EndStep, Next};
use crate::frame::CallFrame;
use crate::sync::{AtomicBool, Ordering};

/// Bounds of the time between two checks of the loop on its calls.
const SHORTEST_NAP_NS: u64 = 5_000_000;
const LONGEST_NAP_NS: u64 = 50_000_000;

/// Time of a loop's next check on its calls.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Beat {
    /// `None` if no call is in flight.
    pub nap_ns: Option<u64>,
    /// A call must be cancelled (`LoopQueue::overdue`).
    pub overdue: bool,
}

/// Work for the loop of one generation.
pub struct LoopQueue<F> {
    owner: Arc<EventLoop<F>>,
    generation: u64,
    wake: Arc<Wake>,
    heartbeat: Arc<Heartbeat>,
    /// True after the last use by the loop. Written once.
    over: AtomicBool,
}

/// A frame on an event loop: many of its calls run at a time, and each is ended by its index.
pub struct LoopFrame<F> {
    owner: Arc<EventLoop<F>>,
    calls: Arc<CallsInFlight<F>>,
}

impl<F: CallFrame> LoopQueue<F> {
    /// Makes the queue of a requested loop. `None` if the loop is not needed any more: it counts as
    /// ended then.
    pub fn new(owner: Arc<EventLoop<F>>, generation: u64) -> Option<Self> {
        let Some((wake, heartbeat)) = owner.open(generation) else {
            owner.loop_ended(generation);
            return None;
        };
        Some(Self { owner, generation, wake, heartbeat, over: AtomicBool::new(false) })
    }

    /// Readable while there is news.
    pub fn fd(&self) -> BorrowedFd<'_> {
        self.wake.fd()
    }

    /// Resets the wake-up. Must be the first call after a wake-up: the descriptor stays readable
    /// until then.
    pub fn drain(&self) {
        self.wake.drain();
    }

    /// The next frame that arrived.
    pub fn take(&self) -> Option<LoopFrame<F>> {
        let calls = self.owner.take(self.generation)?;
        Some(LoopFrame { owner: self.owner.clone(), calls })
    }

    /// Returns whether the loop is to end.
    pub fn is_over(&self) -> bool {
        self.owner.is_over(self.generation)
    }

    /// Records that the loop has turned, as requested.
    pub fn turned(&self) {
        self.heartbeat.beat_here(self.owner.now_ns());
    }

    /// Records that the loop turns, and returns the time of its next check.
    pub fn beat(&self) -> Beat {
        self.turned();
        let now_ns = self.heartbeat.turned_ns();
        let in_flight = self.owner.in_flight(self.generation);
        let mut nap_ns = LONGEST_NAP_NS;
        for calls in &in_flight {
            match calls.due_in(now_ns) {
                None => return Beat { nap_ns: Some(SHORTEST_NAP_NS), overdue: true },
                Some(due_ns) => nap_ns = nap_ns.min(due_ns),
            }
        }
        Beat { nap_ns: (!in_flight.is_empty()).then_some(nap_ns.max(SHORTEST_NAP_NS)), overdue: false }
    }

    /// Returns the calls to cancel, and those that ignored their cancellation, each once.
    pub fn overdue(&self) -> Vec<Overdue> {
        self.owner.overdue(self.generation)
    }

    pub fn setup_begins(&self, function: FunctionId) {
        self.owner.setup_begins(self.generation, function);
    }

    pub fn setup_ends(&self, function: FunctionId) {
        self.owner.setup_ends(self.generation, function);
    }

    /// Returns whether the loop is blocked and the cause was not found yet.
    pub fn is_blocked(&self) -> bool {
        self.heartbeat.is_blocked()
    }

    /// Like `is_blocked`, and counts the cause as reported.
    pub fn explain_block(&self) -> bool {
        self.heartbeat.explain()
    }

    /// Records that the loop could not be started; does nothing if it has ended.
    pub fn not_started(&self, reason: &str) {
        if !self.over.swap(true, Ordering::AcqRel) {
            self.owner.fail_waiting(self.generation, reason);
            self.owner.loop_ended(self.generation);
        }
    }

    /// Records that the loop has ended.
    pub fn ended(&self) {
        if !self.over.swap(true, Ordering::AcqRel) {
            self.owner.loop_ended(self.generation);
        }
    }
}

impl<F: CallFrame> LoopFrame<F> {
    pub fn id(&self) -> u64 {
        self.calls.id()
    }

    /// Returns the value that `read` gives for the frame; `None` if the watchdog has taken it.
    pub fn read<T>(&self, read: impl FnOnce(&mut F) -> T) -> Option<T> {
        self.calls.read(read)
    }

    /// Starts the next call, for a runner that has none.
    #[inline]
    pub fn start(&self) -> Next {
        self.next(self.calls.start(self.owner.now_ns()))
    }

    /// Ends a call and starts the next; `stack` belongs to a call that was cancelled.
    #[inline]
    pub fn end(&self, call: usize, stack: Option<String>, end: impl FnOnce(&mut F, Times)) -> Next {
        let now_ns = self.owner.now_ns();
        self.owner.call_ends(&self.calls);
        self.next(self.calls.end(now_ns, call, stack, end))
    }

    /// Gives back the calls that were never started, because no runner is left to start them.
    pub fn give_back_rest(&self) {
        if self.calls.is_active() {
            self.owner.finish(&self.calls, self.calls.give_back_rest());
        }
    }

    /// Fails all calls, because `setup()` failed.
    pub fn fail_setup(&self, reason: String, traceback: Option<String>) {
        let Some(mut frame) = self.calls.take() else { return };
        self.owner.forget(&self.calls);
        frame.fail_setup(reason, traceback);
        drop(frame);
        self.owner.refill(&self.calls);
    }

    #[inline]
    fn next(&self, (next, finished): EndStep<F>) -> Next {
        self.owner.finish(&self.calls, finished);
        self.owner.refill(&self.calls);
        next
    }
}

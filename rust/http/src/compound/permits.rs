//! Permits for the requests of compound calls: first come, first served.
//!
//! - A request goes with a permit of its function's limiter, so that rates, tokens and concurrency
//!   count requests, and so does the circuit breaker.
//! - Only the first in the queue asks the limiter; who gives up leaves the queue.
//! - A limiter that processes share gets ends within milliseconds.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use guerdon_core::clock::Clock;
use guerdon_core::limits::{AcquireResult, Feedback, History, LimitWarning, Limiter, Permit, Tokens};
use tokio::runtime::Handle;
use tokio::sync::{Mutex, Notify};

use crate::fleet::HedgePermit;

/// Longest time until a limiter gets ends that wait to be written.
const FLUSH: Duration = Duration::from_millis(2);

/// The queue for the permits of one limiter.
pub struct PermitQueue {
    limiter: Arc<Limiter>,
    clock: Clock,
    runtime: Handle,
    /// Held by the first in the queue.
    turn: Mutex<()>,
    /// A permit of this queue has ended.
    released: Notify,
    flushing: AtomicBool,
}

/// Leave for one request; dropped without `end`, it was given up, and is refunded if it was not
/// sent.
pub struct RequestPermit {
    sent: bool,
    /// Taken by `end`.
    permit: Option<Permit>,
    queue: Arc<PermitQueue>,
}

impl PermitQueue {
    pub fn new(limiter: Arc<Limiter>, clock: Clock, runtime: Handle) -> Arc<Self> {
        let (turn, released) = (Mutex::new(()), Notify::new());
        Arc::new(Self { limiter, clock, runtime, turn, released, flushing: AtomicBool::new(false) })
    }

    /// Waits for a permit; `Err` has the reason if there is none.
    pub async fn acquire(self: &Arc<Self>, tokens: Tokens) -> Result<RequestPermit, String> {
        let _turn = self.turn.lock().await;
        loop {
            // Before the question: no end is missed.
            let released = self.released.notified();
            match self.limiter.acquire(self.clock.now_ns(), tokens) {
                AcquireResult::Permit(permit) => {
                    return Ok(RequestPermit { sent: false, permit: Some(permit), queue: self.clone() });
                }
                AcquireResult::Refused(reason) => return Err(reason),
                AcquireResult::Wait { until_ns, on_release } => {
                    let latest_ns = self.clock.now_ns().saturating_add(LONGEST_NS);
                    let until = self.clock.sleep_until_ns(until_ns.min(latest_ns));
                    tokio::select! {
                        () = until => {}
                        () = released, if on_release => {}
                    }
                }
            }
        }
    }

    /// Returns the reason why a request with this many tokens can never go.
    pub fn exceeds(&self, tokens: f64) -> Option<String> {
        self.limiter.exceeds(tokens)
    }

    /// Keeps why a request failed; what to warn of, where nobody was yet.
    pub fn note_error(&self, feedback: Feedback, reason: &str) -> Option<LimitWarning> {
        self.limiter.note_error(self.clock.now_ns(), feedback, reason)
    }

    fn flush_soon(self: &Arc<Self>) {
        if !self.limiter.has_unwritten() || self.flushing.swap(true, Ordering::AcqRel) {
            return;
        }
        let queue = self.clone();
        self.runtime.spawn(async move {
            loop {
                tokio::time::sleep(FLUSH).await;
                queue.flushing.store(false, Ordering::Release);
                if queue.limiter.flush(queue.clock.now_ns()) || queue.flushing.swap(true, Ordering::AcqRel) {
                    return;
                }
            }
        });
    }
}

/// A limiter is asked again after this time in any case.
const LONGEST_NS: u64 = 3_600_000_000_000;

impl RequestPermit {
    /// The request goes out now.
    pub const fn send(&mut self) {
        self.sent = true;
    }

    /// Leave for a second request; `None` if there is none right now.
    pub fn second(&self) -> Option<HedgePermit> {
        let clock = self.queue.clock;
        let permit = self.permit.as_ref()?.another(clock.now_ns())?;
        Some(HedgePermit { permit: Some(permit), clock })
    }

    /// The request has ended; true if its failure is excused.
    pub fn end(mut self, feedback: Feedback, tokens: Option<f64>, history: History) -> bool {
        let now_ns = self.queue.clock.now_ns();
        self.permit.take().is_some_and(|permit| permit.end(now_ns, feedback, tokens, history))
    }
}

impl Drop for RequestPermit {
    fn drop(&mut self) {
        // Given up in mid-request: that says nothing of the endpoint.
        if let Some(permit) = self.permit.take().filter(|_| self.sent) {
            permit.end(self.queue.clock.now_ns(), Feedback::Unknown, None, History::default());
        }
        self.queue.released.notify_one();
        self.queue.flush_soon();
    }
}

//! Calls of a node and their locations, for drivers and their users.
//!
//! - A driver sends a node one request at a time; requests made meanwhile get the same answer.
//! - Time and bytes are bounded. A node that does not answer in time is shown with the calls that
//!   the driver sent to it.

use std::sync::Arc;
use std::sync::mpsc::Sender;
use std::time::Duration;

use guerdon_core::in_flight::InFlight;
use tokio::time::Instant;

use crate::agent_state::AgentState;
use crate::link::Link;
use crate::wire::{RunningCall, ToDriver};

/// The most calls in an agent's answer, and the most bytes of their stacks.
const MOST_CALLS: usize = 1024;
const MOST_BYTES: usize = 1 << 20;
/// The longest time that an agent takes for an answer.
const LONGEST: Duration = Duration::from_secs(30);
/// Share of the remaining time that is reserved for the answer's transport.
const SHARE: u32 = 5;

/// Threads that wait for one node's answer.
#[derive(Default)]
pub(crate) struct Inspections {
    waiting: Vec<(Sender<InFlight>, Instant)>,
    /// Time until which a request is under way.
    asked: Option<Instant>,
}

impl Inspections {
    /// Adds a thread that waits for an answer. Returns the agent's time, if a request must be sent.
    pub(crate) fn add(&mut self, answer: Sender<InFlight>, within: Duration) -> Option<Duration> {
        let ends = Instant::now() + within;
        self.waiting.push((answer, ends));
        if self.asked.is_some() {
            return None;
        }
        self.asked = Some(ends);
        Some(within - within / SHARE)
    }

    /// Returns the waiting threads, because the agent has answered.
    pub(crate) fn answered(&mut self) -> Vec<Sender<InFlight>> {
        self.asked = None;
        self.waiting.drain(..).map(|(answer, _)| answer).collect()
    }

    /// Returns the threads whose time is over.
    pub(crate) fn overdue(&mut self) -> Vec<Sender<InFlight>> {
        let now = Instant::now();
        self.asked = self.asked.filter(|ends| *ends > now);
        self.waiting.extract_if(.., |(_, ends)| *ends <= now).map(|(answer, _)| answer).collect()
    }
}

/// Answers a driver, on a thread that may wait.
pub(crate) fn answer(agent: &Arc<AgentState>, session: u64, link: &Arc<Link>, within: Duration) {
    let (agent, link) = (agent.clone(), link.clone());
    tokio::task::spawn_blocking(move || {
        let within = within.min(LONGEST);
        let inspected = agent.inspector.get().map(|inspect| inspect(agent.runner.lanes(), within));
        let frames = agent.runner.calls_of(session);
        let mut left = MOST_BYTES;
        let calls = inspected.unwrap_or_default().into_iter().filter_map(|InFlight { call, location, stack }| {
            // Calls of other drivers, and calls that have ended meanwhile, belong to no frame here.
            let of = frames.get(&call.batch)?;
            let first = call.samples.first()?.start;
            let stack = match stack.text() {
                Ok(stack) if stack.len() <= left => {
                    left -= stack.len();
                    Ok(stack)
                }
                Ok(_) => Err("the stacks of its node are too long to send all of them".to_owned()),
                stack => stack,
            };
            let (phase, age_ns, place) = (call.phase, call.age_ns, location.to_string());
            Some(RunningCall { frame: of.frame(), call: of.call_of(first), phase, age_ns, place, stack })
        });
        let calls = ToDriver::Running(calls.take(MOST_CALLS).collect());
        link.write(|out| calls.write(out));
    });
}

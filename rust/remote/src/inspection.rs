//! Calls of a node, and their locations: asked by drivers for people.
//!
//! - A driver asks a node one question at a time; who asks meanwhile gets the same answer.
//! - Time and bytes are bounded. A node that does not answer in time is shown as far as the driver
//!   knows it.

use std::sync::Arc;
use std::sync::mpsc::Sender;
use std::time::Duration;

use guerdon_core::in_flight::InFlight;
use tokio::time::Instant;

use crate::agent_state::AgentState;
use crate::link::Link;
use crate::wire::{InHandCall, ToDriver};

/// The most calls that an agent tells of, and the most bytes of their stacks.
const MOST_CALLS: usize = 1024;
const MOST_BYTES: usize = 1 << 20;
/// The longest that an agent looks.
const LONGEST: Duration = Duration::from_secs(30);
/// Share of the remaining time that is kept for the way.
const SHARE: u32 = 5;

/// Threads that wait for one node's answer.
#[derive(Default)]
pub(crate) struct Inspections {
    waiting: Vec<(Sender<InFlight>, Instant)>,
    /// A question is on its way until then.
    asked: Option<Instant>,
}

impl Inspections {
    /// Somebody asks; how long the agent may take, if it is to be asked.
    pub(crate) fn add(&mut self, answer: Sender<InFlight>, within: Duration) -> Option<Duration> {
        let ends = Instant::now() + within;
        self.waiting.push((answer, ends));
        if self.asked.is_some() {
            return None;
        }
        self.asked = Some(ends);
        Some(within - within / SHARE)
    }

    /// The agent has answered: returns the waiting threads.
    pub(crate) fn answered(&mut self) -> Vec<Sender<InFlight>> {
        self.asked = None;
        self.waiting.drain(..).map(|(answer, _)| answer).collect()
    }

    /// Those whose time is over.
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
            // Calls of other drivers, and those that have ended meanwhile, are of no frame.
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
            Some(InHandCall { frame: of.frame(), call: of.call_of(first), phase, age_ns, place, stack })
        });
        let calls = ToDriver::InHand(calls.take(MOST_CALLS).collect());
        link.write(|out| calls.write(out));
    });
}

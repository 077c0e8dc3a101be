//! Serves one driver: takes its frames, and sends reports on them.

use std::ops::Range;
use std::sync::Arc;

use guerdon_core::frame_runner::{FrameEvent, HostedFrame};
use guerdon_core::outcome::{Failure, FailureKind, Times};
use guerdon_wire::items::Items;

use crate::agent_state::AgentState;
use crate::frame_values::FrameValues;
use crate::inspection;
use crate::link::Link;
use crate::wire::{FrameHead, PROTOCOL, ToAgent, ToDriver};

/// Largest number of calls in a frame, far above that of any real frame: a damaged count must not
/// make more answers.
const MOST_CALLS: usize = 65_536;

/// Serves a driver until it is gone.
pub(crate) async fn serve(agent: Arc<AgentState>, session: u64, link: Arc<Link>) {
    let mut greeted = false;
    while let Ok(message) = link.receive().await {
        match take(&agent, session, &link, &Arc::new(message), &mut greeted) {
            Ok(true) => {}
            Ok(false) => break,
            Err(reason) => {
                link.write(|out| ToDriver::Refused(reason).write(out));
                break;
            }
        }
    }
    agent.runner.end_session(session);
    agent.sessions.remove(session);
    link.close();
}

/// Acts on a message; false if the driver leaves, an error for an impossible message.
fn take(
    agent: &Arc<AgentState>,
    session: u64,
    link: &Arc<Link>,
    message: &Arc<Vec<u8>>,
    greeted: &mut bool,
) -> Result<bool, String> {
    let mut items = Items::of(message);
    while let Some(item) = ToAgent::next(&mut items) {
        let (item, values) = item.map_err(|error| format!("the driver sent {error}"))?;
        if !*greeted && !matches!(item, ToAgent::Hello { .. } | ToAgent::Close) {
            return Err("the driver sent a frame before its greeting".to_owned());
        }
        match item {
            ToAgent::Hello { protocol, digest, clock_ns } => {
                let slots = u32::try_from(agent.config.slots).unwrap_or(u32::MAX);
                let (heard_ns, clock_ns) = (clock_ns, agent.clock.now_ns());
                let ready = ToDriver::Ready { protocol: PROTOCOL, slots, heard_ns, clock_ns };
                if protocol != PROTOCOL {
                    // A driver of another version can read this message, but perhaps no refusal.
                    link.write(|out| ready.write(out));
                    return Err(format!(
                        "its agent speaks version {PROTOCOL} of the agents' protocol, and this process version \
                         {protocol}; install the same version of guerdon on all nodes"
                    ));
                }
                if digest != agent.config.digest {
                    return Err("its agent has other reward functions than this process".to_owned());
                }
                *greeted = true;
                link.write(|out| ready.write(out));
            }
            ToAgent::Frame(head) => submit(agent, session, link, message, head, values)?,
            ToAgent::TakeBack(frame) => {
                agent.runner.take_back(session, frame);
                // The driver waits for this answer, even if it gets no calls back: it requests
                // other frames then.
                link.hurry();
            }
            ToAgent::Sweep(frame, calls) => agent.runner.sweep(session, frame, &calls),
            ToAgent::Ping(clock_ns) => {
                let stats = (agent.config.stats)();
                let (heard_ns, clock_ns) = (clock_ns, agent.clock.now_ns());
                link.write(|out| ToDriver::Pong { heard_ns, clock_ns, stats }.write(out));
                agent.output.report(link);
            }
            ToAgent::Inspect(within) => inspection::answer(agent, session, link, within),
            ToAgent::Close => return Ok(false),
        }
    }
    Ok(true)
}

fn submit(
    agent: &AgentState,
    session: u64,
    link: &Arc<Link>,
    message: &Arc<Vec<u8>>,
    head: FrameHead,
    values: Range<usize>,
) -> Result<(), String> {
    let FrameHead { id, function, kind, alone, suspect, calls, samples, names, scores } = head;
    let rows = calls.checked_mul(samples).ok_or("the driver sent a frame of too many samples")?;
    let Some(values) = FrameValues::new(message.clone(), values, rows, names) else {
        refuse_values(link, id, calls);
        return Ok(());
    };
    let payload = Box::new(values);
    let frame = HostedFrame { session, id, function, kind, calls, samples, alone, suspect, payload, scores };
    agent.sessions.frame_came(session);
    agent.runner.submit(frame).map_err(|why| format!("the driver sent {why}"))
}

/// Fails the calls of a frame whose values can't be read. The connection and other frames go on.
fn refuse_values(link: &Link, id: u64, calls: usize) {
    let reason = "its values reached the node damaged: they are not well formed".to_owned();
    let failure = Failure::new(FailureKind::Error, reason);
    link.write(|out| {
        for call in 0..calls.min(MOST_CALLS) {
            let event = FrameEvent::Failed { call, failure: failure.clone(), record: None, times: Times::default() };
            ToDriver::Frame(id, event).write(out);
        }
        ToDriver::Frame(id, FrameEvent::Ended).write(out);
    });
}

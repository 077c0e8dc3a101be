//! Stacks of this process's calls for who looks at the live state: the thread supervisor reads
//! them, as Python's part of a stack can be read by Python alone.
//!
//! - Who asks holds no GIL and waits for a bounded time; a supervisor that can't run costs that
//!   time.
//! - An answer that comes too late reaches nobody, and a question that nobody waits for any more is
//!   not answered.
//! - A stack is given with the call that it belongs to: not if the call ended meanwhile.

use std::cmp::Reverse;
use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{SyncSender, sync_channel};
use std::time::Duration;

use guerdon_core::in_flight::{InFlightCall, Phase};
use guerdon_inprocess::asyncio_lane::{AsyncioLane, LoopSnapshot};
use guerdon_inprocess::supervisor::{LoopCall, SupervisorQueue, SupervisorRequest};
use guerdon_inprocess::thread_lane::{ThreadLane, ThreadSnapshot};
use parking_lot::Mutex;

/// Calls whose stacks are read: those in flight for the longest.
const MOST: usize = 20;

const LATE: &str = "Python did not answer in time";
const NOT_ASKED: &str = "not asked for";
const YOUNG: &str = "read of the calls that take longest only";
const ENDED: &str = "the call ended meanwhile";
const NOTHING: &str = "none of the user's code is on it";

/// A call, and where it stands or why that is not known.
pub type WithStack<T> = (T, Result<String, String>);

/// See the module.
#[derive(Default)]
pub struct StackReader {
    asked: AtomicU64,
    /// Who waits, by the number of the question. Written by who asks.
    waiting: Mutex<HashMap<u64, SyncSender<Vec<String>>>>,
}

impl StackReader {
    /// Whether somebody still waits for this answer.
    pub fn is_awaited(&self, number: u64) -> bool {
        self.waiting.lock().contains_key(&number)
    }

    /// Gives the stacks that a question asked for: of its threads, then of its loops' calls.
    pub fn answer(&self, number: u64, stacks: Vec<String>) {
        if let Some(sender) = self.waiting.lock().remove(&number) {
            let _ = sender.try_send(stacks); // who asked may have given up
        }
    }

    fn ask(
        &self,
        supervisor: &SupervisorQueue,
        threads: Vec<u64>,
        loops: Vec<LoopCall>,
        within: Duration,
    ) -> Option<Vec<String>> {
        let number = self.asked.fetch_add(1, Ordering::Relaxed);
        let (sender, receiver) = sync_channel(1);
        self.waiting.lock().insert(number, sender);
        supervisor.push(SupervisorRequest::ReadStacks { number, threads, loops });
        let answer = receiver.recv_timeout(within).ok();
        if answer.is_none() {
            self.waiting.lock().remove(&number);
            supervisor.withdraw_stacks(number);
        }
        answer
    }

    /// The calls of the thread and asyncio lanes with their stacks.
    pub fn look(
        &self,
        supervisor: &SupervisorQueue,
        lanes: (&ThreadLane, &AsyncioLane),
        now_ns: u64,
        within: Option<Duration>,
    ) -> (Vec<WithStack<ThreadSnapshot>>, Vec<WithStack<LoopSnapshot>>) {
        let (threads, loops) = (lanes.0.inspect(now_ns), lanes.1.inspect(now_ns));
        let calls: Vec<&InFlightCall> =
            threads.iter().map(|one| &one.call).chain(loops.iter().map(|one| &one.call)).collect();
        let mut is_read = oldest(&calls);
        let answer = within.filter(|_| !calls.is_empty()).and_then(|within| {
            let chosen = threads.iter().zip(&is_read).filter(|(_, is_read)| **is_read);
            let chosen_loops = loops.iter().zip(&is_read[threads.len()..]).filter(|(_, is_read)| **is_read);
            let idents = chosen.map(|(one, _)| one.ident).collect();
            self.ask(supervisor, idents, chosen_loops.map(|(one, _)| loop_call(one)).collect(), within)
        });
        let (still_threads, still_loops) =
            if answer.is_some() { (lanes.0.inspect(now_ns), lanes.1.inspect(now_ns)) } else { Default::default() };
        is_read.reverse();
        let mut found = Found { answer: answer.map(Vec::into_iter), was_asked: within.is_some(), is_read };
        let with_stack = |one: ThreadSnapshot| {
            let stack = found.next(|| still_threads.iter().any(|now| same_thread(now, &one)));
            (one, stack)
        };
        let threads = threads.into_iter().map(with_stack).collect();
        let with_stack = |one: LoopSnapshot| {
            let stack = found.next(|| still_loops.iter().any(|now| same_on_loop(now, &one)));
            (one, stack)
        };
        (threads, loops.into_iter().map(with_stack).collect())
    }
}

/// Of each call, whether it is among those in flight for the longest.
fn oldest(calls: &[&InFlightCall]) -> Vec<bool> {
    let mut order: Vec<usize> = (0..calls.len()).collect();
    order.sort_by_key(|index| Reverse(calls[*index].age_ns));
    let mut chosen = vec![false; calls.len()];
    order.into_iter().take(MOST).for_each(|index| chosen[index] = true);
    chosen
}

/// The answer, as it is handed out to one call after another.
struct Found {
    answer: Option<std::vec::IntoIter<String>>,
    was_asked: bool,
    /// Of the calls that are left, the last first.
    is_read: Vec<bool>,
}

impl Found {
    /// The next call's stack, or why it has none.
    fn next(&mut self, is_still: impl Fn() -> bool) -> Result<String, String> {
        let is_read = self.is_read.pop().unwrap_or_default();
        let Some(answer) = &mut self.answer else {
            return Err(if self.was_asked { LATE } else { NOT_ASKED }.to_owned());
        };
        if !is_read {
            return Err(YOUNG.to_owned());
        }
        match answer.next() {
            Some(stack) if !stack.is_empty() && is_still() => Ok(stack),
            Some(stack) if !stack.is_empty() => Err(ENDED.to_owned()),
            _ => Err(NOTHING.to_owned()),
        }
    }
}

fn same_thread(one: &ThreadSnapshot, other: &ThreadSnapshot) -> bool {
    one.thread == other.thread && is_same(&one.call, &other.call)
}

fn same_on_loop(one: &LoopSnapshot, other: &LoopSnapshot) -> bool {
    let key = |one: &LoopSnapshot| (one.index, one.generation, one.frame, one.number);
    key(one) == key(other) && is_same(&one.call, &other.call)
}

fn loop_call(one: &LoopSnapshot) -> LoopCall {
    let call = (one.call.phase == Phase::Call).then_some((one.frame, one.number));
    LoopCall { index: one.index, generation: one.generation, function: one.call.function, call }
}

/// What is the same as long as a call goes on.
fn is_same(one: &InFlightCall, other: &InFlightCall) -> bool {
    let key =
        |call: &InFlightCall| (call.function, call.batch, call.attempt, call.phase, call.samples.first().cloned());
    key(one) == key(other)
}

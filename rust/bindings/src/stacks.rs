//! Stacks of this process's calls for who looks at the live state: the thread supervisor reads
//! them, as Python's part of a stack can be read by Python alone.
//!
//! - The asking thread holds no GIL and waits for a bounded time; a supervisor that can't run costs
//!   that time.
//! - An answer that comes too late reaches nobody, and a question that nobody waits for any more is
//!   not answered.
//! - A stack is given with the call that it belongs to: not if the call ended meanwhile.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{SyncSender, sync_channel};
use std::time::{Duration, Instant};

use guerdon_core::clock::Clock;
use guerdon_core::in_flight::{InFlight, Location, Phase, Stack};
use guerdon_core::lane::{self, Lane};
use guerdon_inprocess::supervisor::{LoopCall, SupervisorQueue, SupervisorRequest};
use parking_lot::Mutex;

/// Calls whose stacks are read: those in flight for the longest.
const MOST: usize = 20;

const LATE: &str = "Python did not answer in time";
const YOUNG: &str = "read of the calls that take longest only";
const ENDED: &str = "the call ended meanwhile";
const NOTHING: &str = "none of the user's code is on it";
const UNREADABLE: &str = "not readable on free-threaded Python";

/// See the module.
#[derive(Default)]
pub struct StackReader {
    asked: AtomicU64,
    /// Waiting threads, by the number of their question. Written by who asks.
    waiting: Mutex<HashMap<u64, SyncSender<Vec<String>>>>,
}

impl StackReader {
    /// Returns whether somebody still waits for this answer.
    pub fn is_awaited(&self, number: u64) -> bool {
        self.waiting.lock().contains_key(&number)
    }

    /// Gives the stacks that a question asked for: of its threads, then of its loops' calls. No
    /// stack at all means that none is readable.
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

    /// The calls of lanes, those of this process and then those of others, with their stacks: takes
    /// up to `within`.
    pub fn look(
        &self,
        supervisor: &SupervisorQueue,
        lanes: &[Arc<dyn Lane>],
        clock: Clock,
        within: Duration,
    ) -> Vec<InFlight> {
        let begun = Instant::now();
        let mut calls = lane::in_flight(lanes, clock.now_ns());
        self.read(supervisor, &mut calls, within / 2, || lane::in_flight(lanes, clock.now_ns()));
        calls.extend(lane::in_flight_elsewhere(lanes, within.saturating_sub(begun.elapsed())));
        calls
    }

    /// Reads what Python alone can read, of the calls that come first; `now` looks again.
    fn read(
        &self,
        supervisor: &SupervisorQueue,
        calls: &mut [InFlight],
        within: Duration,
        now: impl FnOnce() -> Vec<InFlight>,
    ) {
        let mut asked: Vec<&mut InFlight> = calls.iter_mut().filter(|one| one.stack == Stack::AskPython).collect();
        if asked.is_empty() {
            return;
        }
        asked.iter_mut().skip(MOST).for_each(|one| one.stack = Stack::Absent(YOUNG.to_owned()));
        asked.truncate(MOST);
        // The answer has the threads first.
        asked.sort_by_key(|one| loop_call(one).is_some());
        let threads = asked.iter().filter_map(|one| thread(one)).collect();
        let loops = asked.iter().filter_map(|one| loop_call(one)).collect();
        let Some(stacks) = self.ask(supervisor, threads, loops, within) else {
            asked.into_iter().for_each(|one| one.stack = Stack::Absent(LATE.to_owned()));
            return;
        };
        if stacks.is_empty() {
            asked.into_iter().for_each(|one| one.stack = Stack::Absent(UNREADABLE.to_owned()));
            return;
        }
        let still = now();
        let mut stacks = stacks.into_iter();
        for one in asked {
            one.stack = match stacks.next().filter(|stack| !stack.is_empty()) {
                Some(stack) if still.iter().any(|now| now.is_of_call(one)) => Stack::Text(stack),
                Some(_) => Stack::Absent(ENDED.to_owned()),
                None => Stack::Absent(NOTHING.to_owned()),
            };
        }
    }
}

/// Python's name of a call's thread.
const fn thread(one: &InFlight) -> Option<u64> {
    if let Location::Thread { ident, .. } = one.location { Some(ident) } else { None }
}

fn loop_call(one: &InFlight) -> Option<LoopCall> {
    let Location::Loop { index, generation, frame, number, .. } = one.location else { return None };
    let call = (one.call.phase == Phase::Call).then_some((frame, number));
    Some(LoopCall { index, generation, function: one.call.function, call })
}

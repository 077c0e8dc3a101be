//! Record of a fake lane.

use std::collections::BTreeMap;

use guerdon_core::call::CallKind;
use guerdon_core::function::FunctionId;
use parking_lot::Mutex;

/// A frame as it was handed out.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FrameSeen {
    pub batch: u64,
    pub function: FunctionId,
    pub kind: CallKind,
    pub alone: bool,
    /// First sample and attempt of each call.
    pub calls: Vec<(usize, u16)>,
    pub at_ns: u64,
}

/// A call that was started.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CallSeen {
    pub batch: u64,
    pub function: FunctionId,
    pub kind: CallKind,
    pub first: usize,
    pub attempt: u16,
    pub handed: u16,
    pub started_ns: u64,
    /// When the lane stopped work on it.
    pub ended_ns: u64,
}

#[derive(Default)]
struct LogState {
    frames: Vec<FrameSeen>,
    calls: Vec<CallSeen>,
    /// Number of calls that run, and the most at a time, per function.
    in_hand: BTreeMap<FunctionId, (usize, usize)>,
    /// Number of times that each attempt was handed out: (batch, function, finish, first, attempt).
    handed: BTreeMap<(u64, FunctionId, bool, usize, u16), u16>,
}

/// Shared by the lane and the test.
#[derive(Default)]
pub struct Log(Mutex<LogState>);

impl Log {
    pub fn frames(&self) -> Vec<FrameSeen> {
        self.0.lock().frames.clone()
    }

    pub fn calls(&self) -> Vec<CallSeen> {
        self.0.lock().calls.clone()
    }

    /// The most calls of a function that ran at a time.
    pub fn peak(&self, function: FunctionId) -> usize {
        self.0.lock().in_hand.get(&function).map_or(0, |(_, peak)| *peak)
    }

    pub(crate) fn frame(&self, frame: FrameSeen) {
        self.0.lock().frames.push(frame);
    }

    /// Counts that an attempt was handed out; returns how often it was handed out before.
    pub(crate) fn handed(&self, batch: u64, function: FunctionId, finish: bool, first: usize, attempt: u16) -> u16 {
        let mut seen = self.0.lock();
        let times = seen.handed.entry((batch, function, finish, first, attempt)).or_insert(0);
        *times += 1;
        *times - 1
    }

    pub(crate) fn started(&self, function: FunctionId) {
        let mut seen = self.0.lock();
        let (now, peak) = seen.in_hand.entry(function).or_insert((0, 0));
        *now += 1;
        *peak = (*peak).max(*now);
    }

    pub(crate) fn ended(&self, call: CallSeen) {
        let mut seen = self.0.lock();
        if let Some((now, _)) = seen.in_hand.get_mut(&call.function) {
            *now -= 1;
        }
        seen.calls.push(call);
    }
}

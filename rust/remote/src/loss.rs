//! Which calls were at which nodes when those were lost, or their workers died.
//!
//! - The loss of a node does not tell which of its calls did it. So the first loss costs a call
//!   nothing: it becomes a suspect. After the second it has a node to itself (`apart`), and only
//!   the loss of that one is its end. Calls of a begun frame that were not next become suspects
//!   with the second. So a call ends three nodes, or four if its beginning was not heard of.
//! - The death of a worker tells: a call has crashed when two of its workers have died.

use std::collections::BTreeMap;
use std::sync::{Arc, Weak};

use guerdon_core::batch::Batch;
use guerdon_core::call::CallKind;
use guerdon_core::frame::Frame;
use guerdon_core::function::FunctionId;
use parking_lot::Mutex;

/// A call: its batch, its function, whether it shapes scores, and the first sample.
type Key = (u64, FunctionId, bool, usize);

/// From so many calls on it is looked through as it grows.
const TIDY_FROM: usize = 256;

#[derive(Default)]
struct Losses {
    batch: Weak<Batch>,
    /// The nodes, in the order of what happened there.
    nodes: Vec<Arc<str>>,
    /// Of these were lost.
    lost: usize,
    /// At these it waited, as far as was heard.
    waited: usize,
    /// Workers of its own that died.
    deaths: usize,
}

/// What a call was doing at a node that was lost.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Standing {
    /// It had the node to itself.
    Apart,
    /// It may have been in hand.
    Next,
    /// It was in a frame that had begun.
    Behind,
    /// Its frame had not begun, as far as was heard.
    Waited,
}

/// What becomes of a call whose node was lost, or whose worker died.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Charge {
    /// It goes back as it is.
    GoesBack,
    /// The attempt has failed; the first time it gets another. The nodes before.
    Failed(Vec<Arc<str>>),
    /// It did it. The nodes before.
    Guilty(Vec<Arc<str>>),
}

/// See the module.
#[derive(Default)]
pub(crate) struct LossLedger {
    /// Written by sessions.
    calls: Mutex<BTreeMap<Key, Losses>>,
}

fn key(frame: &Frame, call: usize) -> Key {
    (frame.batch().id(), frame.function_id(), frame.kind() == CallKind::Finish, frame.first(call))
}

impl Losses {
    fn of<'a>(calls: &'a mut BTreeMap<Key, Self>, frame: &Frame, call: usize) -> &'a mut Self {
        let key = key(frame, call);
        // Where workers die, but no node is lost.
        if calls.len() >= TIDY_FROM && calls.len().is_power_of_two() && !calls.contains_key(&key) {
            tidy(calls);
        }
        calls.entry(key).or_insert_with(|| Self { batch: Arc::downgrade(frame.batch()), ..Self::default() })
    }

    /// Adds a node; those before.
    fn add(&mut self, node: &Arc<str>) -> Vec<Arc<str>> {
        let before = self.nodes.clone();
        self.nodes.push(node.clone());
        before
    }
}

fn tidy(calls: &mut BTreeMap<Key, Losses>) {
    calls.retain(|_, losses| losses.batch.upgrade().is_some_and(|batch| !batch.is_done()));
}

impl LossLedger {
    /// A call was at a node that was lost.
    pub(crate) fn lost(&self, frame: &Frame, call: usize, node: &Arc<str>, standing: Standing) -> Charge {
        // Several samples are tried again in two parts, until it is known which of them it was.
        if frame.kind() == CallKind::Gathered && frame.size(call) > 1 {
            return if standing == Standing::Waited { Charge::GoesBack } else { Charge::Failed(Vec::new()) };
        }
        let mut calls = self.calls.lock();
        let losses = Losses::of(&mut calls, frame, call);
        losses.waited += usize::from(standing == Standing::Waited);
        if standing == Standing::Waited && losses.waited == 1 {
            return Charge::GoesBack;
        }
        let before = losses.add(node);
        losses.lost += 1;
        match standing {
            Standing::Apart => Charge::Guilty(before),
            _ if frame.is_suspect() => Charge::GoesBack,
            Standing::Next => Charge::Failed(before),
            Standing::Behind | Standing::Waited if losses.lost > 1 => Charge::Failed(before),
            Standing::Behind | Standing::Waited => Charge::GoesBack,
        }
    }

    /// The worker of a call died.
    pub(crate) fn died(&self, frame: &Frame, call: usize, node: &Arc<str>) -> Charge {
        let mut calls = self.calls.lock();
        let losses = Losses::of(&mut calls, frame, call);
        let before = losses.add(node);
        losses.deaths += 1;
        let excused = frame.is_suspect() && losses.lost > 0 && losses.deaths == 1;
        if excused { Charge::GoesBack } else { Charge::Failed(before) }
    }

    /// Whether the call of a frame is to have a node to itself.
    pub(crate) fn is_apart(&self, frame: &Frame) -> bool {
        frame.is_suspect() && self.calls.lock().get(&key(frame, 0)).is_some_and(|losses| losses.lost > 1)
    }

    /// Whether a call was at this node when something went wrong.
    pub(crate) fn was_at(&self, frame: &Frame, node: &str) -> bool {
        let calls = self.calls.lock();
        !calls.is_empty()
            && (0..frame.len())
                .filter_map(|call| calls.get(&key(frame, call)))
                .any(|losses| losses.nodes.iter().any(|known| &**known == node))
    }

    /// Forgets what is of batches that are done.
    pub(crate) fn tidy(&self) {
        tidy(&mut self.calls.lock());
    }
}

/// What the reason of a call says of the nodes before.
pub(crate) fn before(nodes: &[Arc<str>]) -> String {
    match nodes {
        [] => String::new(),
        nodes => {
            let names: Vec<String> = nodes.iter().map(|name| format!("'{name}'")).collect();
            format!(" (before that on {})", names.join(", "))
        }
    }
}

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
    /// Adds a node; those before.
    fn add(&mut self, node: &Arc<str>) -> Vec<Arc<str>> {
        let before = self.nodes.clone();
        self.nodes.push(node.clone());
        before
    }
}

/// Forgets what is of batches that are done. What is returned is to be dropped once the lock has
/// been let go: everyone else may have dropped a batch meanwhile, and it may hold Python objects.
#[must_use]
fn tidy(calls: &mut BTreeMap<Key, Losses>) -> Vec<Arc<Batch>> {
    let mut seen = Vec::new();
    calls.retain(|_, losses| {
        let batch = losses.batch.upgrade();
        let stays = batch.as_ref().is_some_and(|batch| !batch.is_done());
        seen.extend(batch);
        stays
    });
    seen
}

impl LossLedger {
    /// Changes what is known of a call.
    fn change<T>(&self, frame: &Frame, call: usize, change: impl FnOnce(&mut Losses) -> T) -> T {
        let key = key(frame, call);
        let mut calls = self.calls.lock();
        // Where workers die, but no node is lost.
        let grown = calls.len() >= TIDY_FROM && calls.len().is_power_of_two() && !calls.contains_key(&key);
        let seen = if grown { tidy(&mut calls) } else { Vec::new() };
        let new = || Losses { batch: Arc::downgrade(frame.batch()), ..Losses::default() };
        let changed = change(calls.entry(key).or_insert_with(new));
        drop(calls);
        drop(seen);
        changed
    }

    /// A call was at a node that was lost.
    pub(crate) fn lost(&self, frame: &Frame, call: usize, node: &Arc<str>, standing: Standing) -> Charge {
        // Several samples are tried again in two parts, until it is known which of them it was.
        if frame.kind() == CallKind::Gathered && frame.size(call) > 1 {
            return if standing == Standing::Waited { Charge::GoesBack } else { Charge::Failed(Vec::new()) };
        }
        self.change(frame, call, |losses| {
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
        })
    }

    /// The worker of a call died.
    pub(crate) fn died(&self, frame: &Frame, call: usize, node: &Arc<str>) -> Charge {
        self.change(frame, call, |losses| {
            let before = losses.add(node);
            losses.deaths += 1;
            let excused = frame.is_suspect() && losses.lost > 0 && losses.deaths == 1;
            if excused { Charge::GoesBack } else { Charge::Failed(before) }
        })
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
        let seen = tidy(&mut self.calls.lock());
        drop(seen);
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

#[cfg(test)]
mod tests {
    //! What is done with a batch as its losses are forgotten.

    use guerdon_core::clock::Clock;
    use guerdon_core::function::Shape;
    use guerdon_core::scheduler::Scheduler;
    use guerdon_testkit::{Act, Ask, FakeLane, Room, function, paused, spec};
    use tokio::runtime::Handle;

    use super::*;

    #[test]
    fn a_batch_outlives_the_lock_under_which_its_losses_are_forgotten() {
        paused(async {
            let (runtime, clock) = (Handle::current(), Clock::start());
            let lane = Arc::new(FakeLane::new(Room::default(), |_: &Ask| Act::Hang));
            let scheduler = Scheduler::start(&runtime, clock, vec![function("f", Shape::Sample)], vec![lane]);
            let batch = scheduler.submit(spec(1, 1)).unwrap();
            let known = Arc::downgrade(&batch);
            let mut calls = BTreeMap::new();
            calls.insert((0, 0, false, 0), Losses { batch: known.clone(), ..Losses::default() });
            calls.insert((1, 0, false, 0), Losses::default());
            assert_eq!(tidy(&mut calls).len(), 1);
            assert_eq!(calls.len(), 1, "the other has no batch any more");
            scheduler.cancel(&batch, "enough");
            scheduler.close().await;
            drop(scheduler);
            let seen = tidy(&mut calls);
            assert!(calls.is_empty());
            drop(batch);
            assert!(known.upgrade().is_some(), "it ended under the lock");
            drop(seen);
            assert!(known.upgrade().is_none());
        });
    }
}

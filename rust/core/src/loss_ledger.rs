//! Calls that were in flight when a resource shared with others was lost: a node, or the process
//! that forks workers.
//!
//! - The loss is not evidence against any one of the calls. The first loss makes a call a suspect,
//!   at the cost of an attempt that `retries` does not count. After more losses (`losses`) the lane
//!   gives the call a dedicated loader or zygote, and only the loss of a dedicated one ends it.
//! - The death of a worker is evidence: a call has crashed when two of its workers have died.
//! - A call on several samples is tried again in two parts, until one sample is alone.

use std::collections::BTreeMap;
use std::sync::{Arc, Weak};

use parking_lot::Mutex;

use crate::batch::Batch;
use crate::call::CallKind;
use crate::frame::Frame;
use crate::function::FunctionId;

/// Key of a call: its batch, its function, whether it shapes scores, and the first sample.
type LedgerKey = (u64, FunctionId, bool, usize);

/// Number of calls above which ended ones are removed as the ledger grows.
const TIDY_FROM: usize = 256;

struct Losses<N> {
    batch: Weak<Batch>,
    /// Places of the call, in the order of the losses there.
    places: Vec<N>,
    /// Number of these that were lost.
    lost: usize,
    /// Number of these at which it waited, by the last report.
    waited: usize,
    /// Number of workers that died while they ran it.
    deaths: usize,
}

/// Progress of a call in a resource that was lost.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LossProgress {
    /// The call had the resource to itself.
    Apart,
    /// The call may have been running.
    Next,
    /// The call was in a frame that had begun.
    Behind,
    /// The frame of the call had not begun, by the last report.
    Waited,
}

/// Consequence of a loss, or of a worker's death, for a call.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Charge<N> {
    /// It goes back unchanged.
    GoesBack,
    /// The attempt has failed; after the first such failure it gets another. The field has the
    /// earlier places.
    Failed(Vec<N>),
    /// The call caused the loss. The field has the earlier places.
    Guilty(Vec<N>),
}

/// See the module. `N` names a lost resource.
pub struct LossLedger<N> {
    /// Written by the threads that detect losses.
    calls: Mutex<BTreeMap<LedgerKey, Losses<N>>>,
}

impl<N> Default for LossLedger<N> {
    fn default() -> Self {
        Self { calls: Mutex::default() }
    }
}

/// Returns whether a call covers several samples that can be tried separately.
fn is_divisible(frame: &Frame, call: usize) -> bool {
    frame.kind() == CallKind::Gathered && frame.size(call) > 1
}

/// The batches and keys of a call: one of each, or one for each gathered sample.
fn keys(frame: &Frame, call: usize) -> impl Iterator<Item = (&Arc<Batch>, LedgerKey)> {
    let each = if frame.kind() == CallKind::Gathered { usize::MAX } else { 1 };
    frame.samples_by_slice(call).take(each).map(|(slice, sample)| {
        let batch = frame.slices()[slice].batch();
        (batch, (batch.id(), frame.function_id(), frame.kind() == CallKind::Finish, sample))
    })
}

/// Removes the losses of batches that are done. Drop the returned batches after the lock is
/// released: the other holders may have dropped a batch meanwhile, and it may hold Python objects.
#[must_use]
fn tidy<N>(calls: &mut BTreeMap<LedgerKey, Losses<N>>) -> Vec<Arc<Batch>> {
    let mut seen = Vec::new();
    calls.retain(|_, losses| {
        let batch = losses.batch.upgrade();
        let stays = batch.as_ref().is_some_and(|batch| !batch.is_done());
        seen.extend(batch);
        stays
    });
    seen
}

impl<N: Clone + PartialEq> Losses<N> {
    fn new(batch: Weak<Batch>) -> Self {
        Self { batch, places: Vec::new(), lost: 0, waited: 0, deaths: 0 }
    }

    /// Adds a place, and returns the places before it.
    fn add(&mut self, place: &N) -> Vec<N> {
        let before = self.places.clone();
        self.places.push(place.clone());
        before
    }
}

impl<N: Clone + PartialEq> LossLedger<N> {
    /// Changes the entry of a call.
    fn change<T>(&self, (batch, key): (&Arc<Batch>, LedgerKey), change: impl FnOnce(&mut Losses<N>) -> T) -> T {
        let mut calls = self.calls.lock();
        // Deaths of workers add entries too, so the ledger grows without any other loss.
        let grown = calls.len() >= TIDY_FROM && calls.len().is_power_of_two() && !calls.contains_key(&key);
        let seen = if grown { tidy(&mut calls) } else { Vec::new() };
        let changed = change(calls.entry(key).or_insert_with(|| Losses::new(Arc::downgrade(batch))));
        drop(calls);
        drop(seen);
        changed
    }

    /// Records that a call was in a resource that was lost.
    pub fn lost(&self, frame: &Frame, call: usize, place: &N, progress: LossProgress) -> Charge<N> {
        if is_divisible(frame, call) {
            if progress == LossProgress::Waited {
                return Charge::GoesBack;
            }
            for sample in keys(frame, call) {
                self.change(sample, |losses| {
                    losses.add(place);
                    losses.lost += 1;
                });
            }
            return Charge::Failed(Vec::new());
        }
        let Some(one) = keys(frame, call).next() else { return Charge::GoesBack };
        self.change(one, |losses| {
            losses.waited += usize::from(progress == LossProgress::Waited);
            if progress == LossProgress::Waited && losses.waited == 1 {
                return Charge::GoesBack;
            }
            let before = losses.add(place);
            losses.lost += 1;
            match progress {
                LossProgress::Apart => Charge::Guilty(before),
                _ if frame.is_suspect() => Charge::GoesBack,
                LossProgress::Next => Charge::Failed(before),
                LossProgress::Behind | LossProgress::Waited if losses.lost > 1 => Charge::Failed(before),
                LossProgress::Behind | LossProgress::Waited => Charge::GoesBack,
            }
        })
    }

    /// Records that the worker of a call died.
    pub fn died(&self, frame: &Frame, call: usize, place: &N) -> Charge<N> {
        if is_divisible(frame, call) {
            return Charge::Failed(Vec::new());
        }
        let Some(one) = keys(frame, call).next() else { return Charge::Failed(Vec::new()) };
        self.change(one, |losses| {
            let before = losses.add(place);
            losses.deaths += 1;
            let excused = frame.is_suspect() && losses.lost > 0 && losses.deaths == 1;
            if excused { Charge::GoesBack } else { Charge::Failed(before) }
        })
    }

    /// Returns the number of losses of the first call of a frame, if that call is a suspect.
    pub fn losses(&self, frame: &Frame) -> usize {
        let Some((_, key)) = keys(frame, 0).next().filter(|_| frame.is_suspect()) else { return 0 };
        self.calls.lock().get(&key).map_or(0, |losses| losses.lost)
    }

    /// Returns whether a call was in this resource when something was lost.
    pub fn was_at(&self, frame: &Frame, place: &N) -> bool {
        let calls = self.calls.lock();
        !calls.is_empty()
            && (0..frame.len())
                .flat_map(|call| keys(frame, call))
                .filter_map(|(_, key)| calls.get(&key))
                .any(|losses| losses.places.contains(place))
    }

    /// Removes the losses of batches that are done.
    pub fn tidy(&self) {
        let seen = tidy(&mut self.calls.lock());
        drop(seen);
    }
}

#[cfg(all(test, not(feature = "loom")))]
mod tests {
    //! Drops a batch as its losses are forgotten.
    #![expect(clippy::unwrap_used, reason = "a batch that can't be made fails its test")]

    use super::*;
    use crate::batch::BatchSpec;
    use crate::call::Call;
    use crate::clock::Clock;
    use crate::outcome::{Cell, Times};
    use crate::scheduler::{NoValues, test_function};

    fn batch(id: u64) -> Arc<Batch> {
        let spec = BatchSpec::whole(1, 1, Box::new(NoValues));
        Arc::new(Batch::new(id, Clock::start(), [test_function()].into(), &Arc::default(), spec).unwrap())
    }

    #[test]
    fn a_batch_outlives_the_lock_under_which_its_losses_are_forgotten() {
        let batch = batch(0);
        let known = Arc::downgrade(&batch);
        let mut calls: BTreeMap<LedgerKey, Losses<()>> = BTreeMap::new();
        calls.insert((0, 0, false, 0), Losses::new(known.clone()));
        calls.insert((1, 0, false, 0), Losses::new(Weak::new()));
        assert_eq!(tidy(&mut calls).len(), 1);
        assert_eq!(calls.len(), 1, "the other has no batch any more");
        let claim = batch.grid().claim_open(0, 0).unwrap();
        let completed = batch.complete(0, Call::fresh(0), claim, [Cell::Value(1.0)], Times::default());
        assert!(batch.announce(&completed.groups));
        let seen = tidy(&mut calls);
        assert!(calls.is_empty());
        drop(batch);
        assert!(known.upgrade().is_some(), "it ended under the lock");
        drop(seen);
        assert!(known.upgrade().is_none());
    }
}

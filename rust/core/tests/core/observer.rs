//! Observers learn of each group once, whole, and before its batch is done.

use std::sync::Arc;
use std::time::Duration;

use guerdon_core::batch::{Batch, BatchSpec};
use guerdon_core::delivery::Delivery;
use guerdon_core::function::{Function, Shape};
use guerdon_core::observer::Telemetry;
use guerdon_testkit::{Act, Ask, Rig, Room, Script, done, function, returns, spec};
use parking_lot::Mutex;

/// Groups that were reported, with their step, and whether all was there then.
#[derive(Default)]
struct Groups(Mutex<Vec<(usize, Option<u64>, bool)>>);

impl Telemetry for Groups {
    fn groups_completed(&self, batch: &Arc<Batch>, groups: &[usize]) {
        for group in groups {
            let mut samples = group * batch.group_size()..(group + 1) * batch.group_size();
            let complete = samples.all(|sample| (0..batch.functions().len()).all(|f| batch.cell(sample, f).is_some()));
            let there = complete && !batch.is_done() && batch.payload().is_some();
            self.0.lock().push((*group, batch.step(), there));
        }
    }
}

impl Groups {
    fn all(&self) -> Vec<(usize, Option<u64>, bool)> {
        let mut seen = self.0.lock().clone();
        seen.sort_unstable();
        seen
    }
}

fn engine(functions: Vec<Function>, script: impl Script) -> (Rig, Arc<Groups>) {
    let rig = Rig::new(Room { places: 8, at_once: true, ..Room::default() }, functions, script);
    let seen = Arc::new(Groups::default());
    rig.observe(vec![seen.clone()]);
    (rig, seen)
}

/// Worth 1, the later the higher the sample.
fn after_its_number(ask: &Ask) -> Act {
    returns(Duration::from_secs(ask.first as u64), ask.samples, 1.0)
}

#[tokio::test(start_paused = true)]
async fn each_group_is_reported_once_when_all_is_there() {
    let shaped = Function { finish: true, ..function("shaped", Shape::Sample) };
    let functions = vec![function("each", Shape::Sample), function("group", Shape::Group), shaped];
    let (engine, seen) = engine(functions, after_its_number);
    engine.run(BatchSpec { step: Some(7), ..spec(20, 4) }).await;
    assert_eq!(seen.all(), (0..20).map(|group| (group, Some(7), true)).collect::<Vec<_>>());
}

#[tokio::test(start_paused = true)]
async fn a_group_that_is_delivered_early_is_reported_as_it_is_delivered() {
    let (engine, seen) = engine(vec![function("each", Shape::Sample)], after_its_number);
    engine.run(BatchSpec { delivery: Delivery::quorum(2), ..spec(3, 4) }).await;
    assert_eq!(seen.all(), [(0, None, true), (1, None, true), (2, None, true)]);
}

#[tokio::test(start_paused = true)]
async fn groups_that_are_cancelled_are_reported() {
    let (engine, seen) = engine(vec![function("each", Shape::Sample)], after_its_number);
    let batch = engine.submit(spec(3, 4));
    engine.cancel(&batch, "no more");
    assert!(done(&batch).await);
    assert_eq!(seen.all(), [(0, None, true), (1, None, true), (2, None, true)]);
}

//! Several drivers share one agent: its workers go where the work is, and its limits hold for all.

use guerdon_core::function::{Function, Shape};
use guerdon_core::outcome::Cell;
use guerdon_testkit::{Act, Ask, done, function};
use tokio::time::Instant;

use crate::rig::{MS, NodeSpec, Rig};

/// Batch 1 has the hard prompts.
fn takes(ask: &Ask) -> Act {
    let after = if ask.batch == 1 { 100 * MS } else { MS };
    Act::Return { after, cells: vec![Cell::Value(1.0); ask.samples] }
}

/// Two drivers of one agent.
fn pair(functions: &[Function], spec: NodeSpec) -> (Rig, Rig) {
    let (one, other) = (Rig::new(functions.to_vec(), takes), Rig::new(functions.to_vec(), takes));
    one.add("host", spec);
    one.share("host", spec, &other);
    (one, other)
}

#[tokio::test(start_paused = true)]
async fn all_workers_are_for_the_rank_with_the_hard_prompts_and_the_other_does_not_wait_for_it() {
    let (hard, easy) = pair(&[function("f", Shape::Sample)], NodeSpec::new(8));
    tokio::time::sleep(50 * MS).await;
    let start = Instant::now();
    let many = hard.submit(1, 320, 1);
    tokio::time::sleep(250 * MS).await;
    let few = easy.submit(2, 8, 1);
    assert!(done(&few).await);
    // A round of the hard ones until workers are free, for each frame in a worker's socket.
    assert!(start.elapsed() <= 250 * MS + 450 * MS, "{:?}", start.elapsed());
    assert!(done(&many).await);
    let bound = 320 * 100 * MS / 8;
    assert!(start.elapsed().as_secs_f64() <= 1.05 * bound.as_secs_f64(), "{:?} of {bound:?}", start.elapsed());
    hard.close().await;
    easy.close().await;
}

#[tokio::test(start_paused = true)]
async fn calls_at_a_time_are_counted_over_all_drivers() {
    let mut limited = function("f", Shape::Sample);
    limited.policy.concurrency = Some(2);
    let (one, other) = pair(&[limited], NodeSpec::new(8));
    tokio::time::sleep(50 * MS).await;
    let batches = (one.submit(1, 20, 1), other.submit(1, 20, 1));
    assert!(done(&batches.0).await && done(&batches.1).await);
    assert_eq!(one.log_of("host").peak(0), 2);
    one.close().await;
    other.close().await;
}

#[tokio::test(start_paused = true)]
async fn frames_of_a_gone_driver_are_ended() {
    let (gone, stays) = pair(&[function("f", Shape::Sample)], NodeSpec::new(4));
    tokio::time::sleep(50 * MS).await;
    let _lost = gone.submit(1, 400, 1);
    tokio::time::sleep(150 * MS).await;
    gone.hang_up("host");
    let start = Instant::now();
    let batch = stays.submit(2, 40, 1);
    assert!(done(&batch).await);
    assert!(start.elapsed() <= 400 * MS, "{:?}", start.elapsed());
    assert_eq!(stays.frames_at("host"), 0);
    stays.close().await;
}

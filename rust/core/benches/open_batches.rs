//! What an event costs beside many open batches of one group each, as asynchronous trainers keep
//! them.
//!
//! An element is the life of one batch: it is submitted, its frame is handed out and ended.
#![allow(clippy::expect_used, reason = "what is missing ends the bench")]

mod reading;

use std::sync::Arc;
use std::time::Duration;

use criterion::{BenchmarkId, Criterion, criterion_group, criterion_main};
use guerdon_core::batch::Batch;
use guerdon_core::clock::Clock;
use guerdon_core::function::{Function, Shape};
use guerdon_core::scheduler::Scheduler;
use guerdon_testkit::{HoldingLane, function, spec};
use reading::PerElement;

const GROUP: usize = 8;
/// Lives a measurement.
const LIVES: usize = 200;

/// How the other batches are open.
#[derive(Clone, Copy)]
enum Others {
    /// Their calls are with the lane.
    InFlight,
    /// Their calls wait for a place.
    Waiting,
}

struct World {
    engine: Scheduler,
    lane: Arc<HoldingLane>,
    _open: Vec<Arc<Batch>>,
}

fn world(runtime: &tokio::runtime::Runtime, others: Others, count: usize) -> World {
    let places = match others {
        Others::InFlight => usize::MAX,
        Others::Waiting => 1,
    };
    let lane = HoldingLane::new(places, GROUP);
    let mut reward: Function = function("f", Shape::Sample);
    reward.policy.total_timeout = Some(Duration::from_secs(600));
    let engine = Scheduler::start(runtime.handle(), Clock::start(), vec![reward], vec![lane.clone()]);
    let open = (0..count).map(|_| engine.submit(spec(1, GROUP)).expect("descriptors are left")).collect();
    World { engine, lane, _open: open }
}

/// The number of open batches stays: one comes for each that ends. Calls in flight end newest
/// first, so that the other batches are untouched for long and leave the caches.
fn live(world: &World) {
    for _ in 0..LIVES {
        let batch = world.engine.submit(spec(1, GROUP)).expect("descriptors are left");
        assert!(world.lane.complete());
        drop(batch);
    }
}

fn events(criterion: &mut Criterion) {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_time().build();
    let runtime = runtime.expect("a runtime for the scheduler's timers");
    for (name, others) in [("in flight", Others::InFlight), ("waiting", Others::Waiting)] {
        let mut group = criterion.benchmark_group(format!("open batches: {name}"));
        group.sample_size(20).warm_up_time(Duration::from_millis(300)).measurement_time(Duration::from_secs(2));
        for count in [1, 10, 100, 1000] {
            let world = world(&runtime, others, count);
            let time = PerElement::default();
            let name = BenchmarkId::from_parameter(count);
            group.bench_function(name, |bencher| time.measure(bencher, || (), |()| live(&world)));
            time.say(LIVES, "a batch");
            runtime.block_on(world.engine.close());
        }
        group.finish();
    }
}

criterion_group!(benches, events);
criterion_main!(benches);

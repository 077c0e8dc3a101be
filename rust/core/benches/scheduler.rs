//! What the engine itself costs a call: a batch from `submit` to its last group, on a lane whose
//! calls take no time.
//!
//! An element is one call.
#![allow(clippy::expect_used, reason = "what is missing ends the bench")]

mod reading;

use std::sync::Arc;
use std::time::Duration;

use criterion::{BenchmarkId, Criterion, Throughput, criterion_group, criterion_main};
use guerdon_core::batch::Batch;
use guerdon_core::clock::Clock;
use guerdon_core::function::Shape;
use guerdon_core::scheduler::Scheduler;
use guerdon_testkit::{function, instant_lane, spec};
use reading::PerElement;

const GROUP: usize = 8;

/// A batch from its submission to the last of its groups.
fn score(engine: &Scheduler, samples: usize) -> Arc<Batch> {
    let batch = engine.submit(spec(samples / GROUP, GROUP)).expect("descriptors are left");
    while batch.take_group().is_some() {}
    assert!(batch.is_done());
    batch
}

fn overhead(criterion: &mut Criterion) {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_time().build();
    let runtime = runtime.expect("a runtime for the scheduler's timers");
    for (name, functions, frame_calls) in [
        ("1 function, frames of 64", 1, 64),
        ("4 functions, frames of 64", 4, 64),
        ("1 function, frames of 1", 1, 1),
        ("1 function, one frame", 1, usize::MAX),
    ] {
        let mut group = criterion.benchmark_group(format!("scheduler: {name}"));
        group.sample_size(20).warm_up_time(Duration::from_millis(500)).measurement_time(Duration::from_secs(2));
        for samples in [1_000, 10_000, 100_000, 1_000_000] {
            let lane = Arc::new(instant_lane(frame_calls));
            let specs = (0..functions).map(|n| function(&format!("f{n}"), Shape::Sample)).collect();
            let engine = Scheduler::start(runtime.handle(), Clock::start(), specs, vec![lane]);
            group.throughput(Throughput::Elements((samples * functions) as u64));
            if samples * functions > 100_000 {
                group.sample_size(10);
            }
            let time = PerElement::default();
            let name = BenchmarkId::from_parameter(samples);
            group.bench_function(name, |bencher| time.measure(bencher, || (), |()| score(&engine, samples)));
            time.say(samples * functions, "a call");
            runtime.block_on(engine.close());
        }
        group.finish();
    }
}

criterion_group!(benches, overhead);
criterion_main!(benches);

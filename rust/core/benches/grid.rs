//! What settling a cell costs: claim, write, countdown of the group.

use criterion::{BatchSize, Criterion, Throughput, criterion_group, criterion_main};
use guerdon_core::grid::Grid;
use guerdon_core::outcome::{Outcome, Status, Times};

const SAMPLES: usize = 4096;
const GROUP: usize = 8;

fn outcome() -> Outcome {
    Outcome { status: Status::Ok, value: 1.0, times: Times { started_ns: 1, run_ns: 1 } }
}

fn grid(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("grid");
    group.throughput(Throughput::Elements(SAMPLES as u64));
    let fresh = || Grid::new(SAMPLES / GROUP, GROUP, 1);
    group.bench_function("settle, one call a sample", |bencher| {
        bencher.iter_batched_ref(
            fresh,
            |grid| {
                let mut groups = 0;
                for sample in 0..SAMPLES {
                    if let Some(claim) = grid.claim(sample, 0, 1) {
                        claim.settle([outcome()], |_| groups += 1);
                    }
                }
                assert_eq!(groups, SAMPLES / GROUP);
            },
            BatchSize::LargeInput,
        );
    });
    group.bench_function("settle, one call a batch", |bencher| {
        bencher.iter_batched_ref(
            fresh,
            |grid| {
                if let Some(claim) = grid.claim(0, 0, 1) {
                    claim.settle((0..SAMPLES).map(|_| outcome()), |_| {});
                }
            },
            BatchSize::LargeInput,
        );
    });
    group.bench_function("make", |bencher| bencher.iter_with_large_drop(fresh));
    group.finish();
}

criterion_group!(benches, grid);
criterion_main!(benches);

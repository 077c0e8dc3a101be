//! What completing a cell costs: claim, write, countdown of the group.

mod reading;

use criterion::{Criterion, Throughput, criterion_group, criterion_main};
use guerdon_core::grid::Grid;
use guerdon_core::outcome::{Outcome, Status, Times};
use reading::PerElement;

const SAMPLES: usize = 4096;
const GROUP: usize = 8;

fn outcome() -> Outcome {
    Outcome { status: Status::Ok, value: 1.0, times: Times { started_ns: 1, run_ns: 1 } }
}

fn fresh() -> Grid {
    Grid::new(SAMPLES / GROUP, GROUP, 1)
}

/// Each sample is a call.
fn one_by_one(grid: Grid) -> Grid {
    let mut groups = 0;
    for sample in 0..SAMPLES {
        if let Some(claim) = grid.claim(sample, 0, 1) {
            claim.complete([outcome()], |_| groups += 1);
        }
    }
    assert_eq!(groups, SAMPLES / GROUP);
    grid
}

/// The batch is one call.
fn all_at_once(grid: Grid) -> Grid {
    let mut groups = 0;
    if let Some(claim) = grid.claim(0, 0, 1) {
        claim.complete((0..SAMPLES).map(|_| outcome()), |_| groups += 1);
    }
    assert_eq!(groups, SAMPLES / GROUP);
    grid
}

fn grid(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("grid");
    group.throughput(Throughput::Elements(SAMPLES as u64));
    let mut bench = |name: &str, run: fn(Grid) -> Grid| {
        let time = PerElement::default();
        group.bench_function(name, |bencher| time.measure(bencher, fresh, run));
        time.say(SAMPLES, "a cell");
    };
    bench("complete, one call a sample", one_by_one);
    bench("complete, one call a batch", all_at_once);
    let time = PerElement::default();
    group.bench_function("make", |bencher| time.measure(bencher, || (), |()| fresh()));
    time.say(SAMPLES, "a cell");
    group.finish();
}

criterion_group!(benches, grid);
criterion_main!(benches);

//! Times for `dump()`: what one element cost, in nanoseconds, beside criterion's throughput.

use std::cell::Cell;
use std::time::{Duration, Instant};

use criterion::Bencher;

/// The best time of one bench.
#[derive(Default)]
pub struct PerElement {
    best: Cell<Option<Duration>>,
}

impl PerElement {
    /// Measures `run`; what `make` makes and what `run` returns is made and dropped outside the
    /// measurement.
    pub fn measure<I, O>(&self, bencher: &mut Bencher<'_>, mut make: impl FnMut() -> I, mut run: impl FnMut(I) -> O) {
        bencher.iter_custom(|times| {
            let mut all = Duration::ZERO;
            for _ in 0..times {
                let input = make();
                let begin = Instant::now();
                let output = run(input);
                let took = begin.elapsed();
                drop(output);
                all += took;
                self.best.set(Some(self.best.get().map_or(took, |best| best.min(took))));
            }
            all
        });
    }

    /// Says what an element cost at best, if anything was measured.
    pub fn say(&self, elements: usize, what: &str) {
        if let Some(best) = self.best.get() {
            println!("{:>24}best: {:.1} ns {what}\n", "", best.as_secs_f64() * 1e9 / elements as f64);
        }
    }
}

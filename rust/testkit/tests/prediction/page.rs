//! The page docs/internals/prediction.md, its tables made by the simulation.

use std::fmt::Write;
use std::time::Duration;

use guerdon_testkit::paused;
use guerdon_testkit::training::{MODES, Mode, Queue, Recipe, steady_step, steps};

/// Steps that a figure is the mean of, less those at both ends of a run.
const STEPS: u64 = 6;

/// A step on hardware that grows with the batch, and a judge that does or does not.
fn large(samples: usize, at_once: usize) -> Recipe {
    Recipe {
        samples,
        group: 8,
        generation: Duration::from_secs(60),
        training: Duration::from_secs(60),
        delays: (Duration::from_secs(1), Duration::from_secs(40)),
        at_once,
        pieces: 8,
    }
}

/// The real run that stands beside its prediction: the recipe of `make bench-training`, scaled down
/// by 12.5, and what a step took in [`MODES`]' order.
const REAL: Recipe = Recipe {
    samples: 32,
    group: 4,
    generation: Duration::from_millis(3200),
    training: Duration::from_millis(6400),
    delays: (Duration::from_millis(80), Duration::from_millis(3200)),
    at_once: 256,
    pieces: 4,
};
const MEASURED: [f64; 4] = [12.777, 11.812, 9.659, 9.674];

fn seconds(recipe: &Recipe, mode: Mode) -> f64 {
    paused(async { steady_step(&steps(recipe, mode, STEPS, &mut Queue::default()).await, mode) })
}

pub fn page() -> String {
    let mut page = String::from(HEAD);
    for samples in [512, 8192, 131_072] {
        for at_once in [usize::MAX, 4096].into_iter().filter(|&places| places == usize::MAX || places < samples) {
            let times = MODES.map(|(_, mode)| seconds(&large(samples, at_once), mode));
            let room = if at_once == usize::MAX { "all".to_owned() } else { at_once.to_string() };
            let _ = write!(page, "| {samples} | {room} |");
            for time in times {
                let _ = write!(page, " {time:.0} s{} |", share(time, times[0]));
            }
            page.push('\n');
        }
    }
    page.push_str(BETWEEN);
    let times = MODES.map(|(_, mode)| seconds(&REAL, mode));
    let _ = write!(page, "| predicted |");
    for time in times {
        let _ = write!(page, " {time:.2} s{} |", share(time, times[0]));
    }
    let _ = write!(page, "\n| measured |");
    for time in MEASURED {
        let _ = write!(page, " {time:.2} s{} |", share(time, MEASURED[0]));
    }
    page.push('\n');
    page.push_str(TAIL);
    page
}

/// What a mode saves of the time without it.
fn share(time: f64, off: f64) -> String {
    if time == off { String::new() } else { format!(" ({:+.0} %)", (time / off - 1.0) * 100.0) }
}

const HEAD: &str = "\
# What each pipeline mode saves

`rust/testkit/src/training.rs` simulates a training run as events on a paused clock: the trainer generates, waits for rewards
and trains as the real one does, and rewards are computed meanwhile. `cargo run --package guerdon-testkit --example predict`
makes this page; a test fails when it is out of date.

The table shows seconds per step with 60 s of generation, 60 s of training in eight micro-steps, groups of eight, and rewards of
1 to 40 s a sample, uniformly distributed. *At once*: how many rewards are computed at the same time, all of a batch's or 4096,
as by a judge with that many slots. The training hardware grows with the batch; the judge does not.

| samples a step | at once | off | mini_batch | one_step | both |
| ---: | ---: | ---: | ---: | ---: | ---: |
";

const BETWEEN: &str = "
- Where rewards take no longer than generation and training together, `one_step` hides all of them; mini-batches add nothing.
- `mini_batch` alone hides the training that is possible before the last group is complete: less, the more stragglers there
  are. It adds no staleness.
- Where the judge is the bottleneck (131 072 samples through 4096 slots: ten minutes), look-ahead hides generation and training
  behind it, and no mode makes a step shorter than the judge needs. Only more slots do.
- With vLLM, TRL computes the log-probabilities of a batch in every mode. Without it look-ahead adds that forward pass to the
  generation, about a third of the training: 20 s here, 140 s a step in `one_step` and `both`.

## Compared with real runs

The published asynchronous-reward recipe scaled down by 12.5, in TRL's trainer on two cores (`make bench-training`, medians of
five runs): 32 samples a step in groups of four and four mini-batches, 3.2 s of generation, 6.4 s of training, rewards of 0.08 to
3.2 s; and the simulation with the same times.

| | off | mini_batch | one_step | both |
| --- | ---: | ---: | ---: | ---: |
";

const TAIL: &str = "
The simulation leaves out the trainer's own overhead, 0.04 to 0.15 s a step here.
";

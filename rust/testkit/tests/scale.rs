//! The engine of a large trainer as queues, for docs/internals/scale.md.
//!
//! - A part has threads or slots; a job takes one of them, in order of arrival.
//! - Time is virtual, and every thread has a core for itself.
#![allow(clippy::unwrap_used, reason = "what is missing has failed the test")]

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::fmt::Write;
use std::time::Duration;

use guerdon_testkit::paused;
use guerdon_testkit::training::{Engine, Recipe, Rewards};
use tokio::time::Instant;

const STEP_S: f64 = 120.0;
const SAMPLES_PER_GPU: usize = 192;
const KIB: f64 = 32.0;
const JUDGE_S: (f64, f64) = (1.0, 10.0);
const SLOTS_PER_GPU: usize = 32;

/// A part: name, threads, and the microseconds of a sample, fixed and for each KiB of its texts.
struct Part(&'static str, usize, f64, f64);

const CALLER: Part = Part("caller's thread", 1, 1.3, 0.0);
const PROCESS: Part = Part("engine's threads, a process call", 2, 0.4, 0.19);
const JUDGE: Part = Part("engine's threads, a judge request", 2, 22.0, 4.1);
const WORKERS: Part = Part("workers, a function of 5 ms", 64, 5000.6, 0.27);
const JOURNAL: Part = Part("journal's writer, two rows", 1, 0.0, 4.1);

impl Part {
    fn seconds(&self) -> f64 {
        (self.2 + self.3 * KIB) * 1e-6
    }
}

/// Serves jobs, each with its arrival and its work; returns the end of each.
fn serve(threads: usize, jobs: &[(Duration, Duration)]) -> Vec<Duration> {
    let mut free: BinaryHeap<_> = vec![Reverse(Duration::ZERO); threads].into();
    let mut order: Vec<usize> = (0..jobs.len()).collect();
    order.sort_by_key(|&job| jobs[job].0);
    let mut ends = vec![Duration::ZERO; jobs.len()];
    for job in order {
        let (arrival, work) = jobs[job];
        ends[job] = free.pop().unwrap().0.max(arrival) + work;
        free.push(Reverse(ends[job]));
    }
    ends
}

fn last(ends: &[Duration]) -> Duration {
    ends.iter().max().copied().unwrap_or_default()
}

/// Seconds from the end of generation to the last reward, and to its row in the journal. All
/// samples are handed over at once, each for a function in workers and for a judge.
fn step(samples: usize, slots: usize) -> [f64; 2] {
    let seconds = Duration::from_secs_f64;
    let mut random = fastrand::Rng::with_seed(1);
    let captured = seconds(CALLER.seconds() * samples as f64);
    let jobs = |work: f64| vec![(captured, seconds(work)); samples];
    let sent = serve(PROCESS.1, &[jobs(PROCESS.seconds()), jobs(JUDGE.seconds())].concat());
    let (process, judge) = sent.split_at(samples);
    let called = process.iter().map(|&sent| (sent, seconds(WORKERS.seconds())));
    let asked = judge.iter().map(|&sent| (sent, seconds(JUDGE_S.0 + (JUDGE_S.1 - JUDGE_S.0) * random.f64())));
    let ends = [serve(WORKERS.1, &called.collect::<Vec<_>>()), serve(slots, &asked.collect::<Vec<_>>())].concat();
    let rows: Vec<_> = ends.iter().map(|&end| (end, seconds(JOURNAL.seconds() / 2.0))).collect();
    [last(&ends), last(&serve(JOURNAL.1, &rows))].map(|end| end.as_secs_f64())
}

fn tables() -> String {
    let mut text = String::from(
        "| part | threads | µs a sample | s a step of 512 GPUs | full at, GPUs |\n| --- | ---: | ---: | ---: | ---: |\n",
    );
    for part in [CALLER, PROCESS, JUDGE, WORKERS, JOURNAL] {
        let of_gpu = part.seconds() * SAMPLES_PER_GPU as f64 / part.1 as f64;
        let (name, threads, us) = (part.0, part.1, part.seconds() * 1e6);
        let _ = writeln!(
            text,
            "| {name} | {threads} | {us:.0} | {:.2} | {:.0} |",
            of_gpu * 512.0,
            (STEP_S / of_gpu / 100.0).round() * 100.0
        );
    }
    text += "\n| GPUs | samples | last reward, 256 slots | slots | last reward | its row |\n| ---: | ---: | ---: | ---: | ---: | ---: |\n";
    for gpus in [8, 64, 512, 2048] {
        let (samples, slots) = (gpus * SAMPLES_PER_GPU, gpus * SLOTS_PER_GPU);
        let ([default, _], [reward, row]) = (step(samples, 256), step(samples, slots));
        let _ = writeln!(text, "| {gpus} | {samples} | {default:.0} s | {slots} | {reward:.0} s | {row:.0} s |");
    }
    text
}

#[test]
fn page_has_the_tables_of_the_simulation() {
    let (page, tables) = (include_str!("../../../docs/internals/scale.md"), tables());
    assert!(page.contains(&tables), "docs/internals/scale.md must have:\n{tables}");
}

/// Virtual time of a batch through the engine, and the same by the simulation.
fn batch(samples: usize, slots: usize) -> [Duration; 2] {
    let (most, none) = (Duration::from_secs(1), Duration::ZERO);
    let delays = (most / 10, most);
    let recipe = Recipe { samples, group: 8, delays, at_once: slots, pieces: 1, generation: none, training: none };
    let calls: Vec<_> = recipe.draw(0).into_iter().map(|delay| (none, delay)).collect();
    let took = paused(async {
        let mut engine = Engine::start(&recipe);
        let start = Instant::now();
        let mut groups = engine.begin(&recipe, 0);
        while groups.recv().await.is_some() {}
        let took = start.elapsed();
        engine.close().await;
        took
    });
    [took, last(&serve(slots, &calls))]
}

#[test]
fn simulation_agrees_with_the_engine() {
    for slots in [512, 16_384] {
        let [took, simulated] = batch(16_384, slots);
        let waits = took.div_duration_f64(simulated);
        assert!((0.98..1.02).contains(&waits), "{slots} slots: {took:?}, simulated {simulated:?}");
    }
}

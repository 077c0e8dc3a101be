//! Counts of outcomes, updated as groups complete.
//!
//! - The live state also counts the cells of open groups. A rate counts each cell in the second in
//!   which its call ended.
//! - Until the first reader, a completed group costs one load. From then on each cell is counted
//!   once, by the thread that completed its group.
//! - Threads count in separate stripes to avoid contention; a reader adds the stripes.
//! - A lock is held for one report of groups, or for the copy of a stripe.

use std::sync::Arc;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::SystemTime;

use guerdon_core::batch::Batch;
use guerdon_core::clock::Clock;
use guerdon_core::function::{FunctionId, Shape};
use guerdon_core::observer::Telemetry;
use guerdon_core::outcome::{Outcome, Status, Times};
use parking_lot::{Mutex, MutexGuard};

use crate::metrics::histogram::Histogram;

const STRIPES: usize = 4;
/// Number of complete seconds that a rate covers.
const RATE_SECONDS: u64 = 10;
const RING: usize = 16;
const SECOND_NS: u64 = 1_000_000_000;

static NEXT_STRIPE: AtomicUsize = AtomicUsize::new(0);
thread_local! {
    static STRIPE: usize = NEXT_STRIPE.fetch_add(1, Ordering::Relaxed) % STRIPES;
}

/// The outcomes of one function.
#[derive(Clone, Debug, Default)]
pub struct Tally {
    /// Samples, by the number of their status.
    pub samples: [u64; Status::WORDS.len()],
    /// Run times of the calls whose function started; of a call on gathered samples, of each
    /// sample.
    pub run: Histogram,
    pub queue: Histogram,
    /// Groups with at least two rewards, and those of them whose rewards are all equal.
    pub groups: u64,
    pub groups_without_spread: u64,
    /// Seconds, each with the number of samples whose calls ended in it.
    recent: [(u64, u64); RING],
}

type Stripes = [Mutex<Vec<Tally>>; STRIPES];

/// See the module.
pub struct Tallies {
    clock: Clock,
    functions: usize,
    /// Start of the counting, also by the clock, and the counts of each function. Written by the
    /// threads that complete groups.
    stripes: OnceLock<(SystemTime, u64, Stripes)>,
}

impl Tallies {
    #[must_use]
    pub const fn new(clock: Clock, functions: usize) -> Self {
        Self { clock, functions, stripes: OnceLock::new() }
    }

    /// Starts counting, once.
    pub fn count(&self) {
        let now_ns = self.clock.now_ns();
        let make =
            || (SystemTime::now(), now_ns, std::array::from_fn(|_| Mutex::new(vec![Tally::default(); self.functions])));
        self.stripes.get_or_init(make);
    }

    /// Returns the start of the counting.
    #[must_use]
    pub fn since(&self) -> Option<SystemTime> {
        self.stripes.get().map(|(since, ..)| *since)
    }

    /// Returns the counts of each function.
    #[must_use]
    pub fn read(&self) -> Vec<Tally> {
        let mut all = vec![Tally::default(); self.functions];
        for stripe in self.stripes.get().iter().flat_map(|(.., stripes)| stripes) {
            let counted = stripe.lock().clone();
            all.iter_mut().zip(&counted).for_each(|(all, one)| all.merge(one));
        }
        all
    }

    /// Returns the counts of each function with those of open groups, and the number of cells
    /// without an outcome. A group that completes during the call is left out.
    #[must_use]
    pub fn read_live(&self, batches: &[Arc<Batch>]) -> Vec<(Tally, usize)> {
        let mut all: Vec<(Tally, usize)> = self.read().into_iter().map(|tally| (tally, 0)).collect();
        let window = self.window();
        for batch in batches {
            let size = batch.group_size().max(1);
            for (function, (tally, open)) in all.iter_mut().enumerate().take(batch.functions().len()) {
                for sample in (0..batch.samples()).filter(|sample| batch.grid().is_group_open(sample / size)) {
                    match batch.grid().read(sample, function) {
                        Some((outcome, _)) => tally.add_outcome(&outcome, window),
                        None => *open += 1,
                    }
                }
            }
        }
        all
    }

    /// Returns the recent samples per second.
    #[must_use]
    pub fn rate(&self, tally: &Tally) -> f64 {
        let now = self.clock.now_ns() / SECOND_NS;
        let recent = tally.recent.iter().filter(|(second, _)| (now.saturating_sub(RATE_SECONDS)..now).contains(second));
        #[expect(clippy::cast_precision_loss, reason = "a few million at most")]
        let rate = recent.map(|(_, count)| count).sum::<u64>() as f64 / RATE_SECONDS as f64;
        rate
    }

    fn window(&self) -> Window {
        Window { since_ns: self.stripes.get().map_or(0, |(_, since_ns, _)| *since_ns), now_ns: self.clock.now_ns() }
    }

    fn stripe(&self) -> Option<MutexGuard<'_, Vec<Tally>>> {
        let (.., stripes) = self.stripes.get()?;
        let own = STRIPE.try_with(|stripe| *stripe).unwrap_or(0);
        let free = (0..STRIPES).find_map(|more| stripes[(own + more) % STRIPES].try_lock());
        Some(free.unwrap_or_else(|| stripes[own].lock()))
    }
}

impl Telemetry for Tallies {
    fn groups_completed(&self, batch: &Arc<Batch>, groups: &[usize]) {
        let Some(mut tallies) = self.stripe() else { return };
        let window = self.window();
        // A batch has no cells of hidden functions.
        for (function, tally) in tallies.iter_mut().enumerate().take(batch.functions().len()) {
            for group in groups {
                tally.add_group(batch, function, *group, window);
            }
        }
    }
}

/// Start of the counting, and the current time.
#[derive(Clone, Copy)]
struct Window {
    since_ns: u64,
    now_ns: u64,
}

impl Window {
    /// Returns the second in which a call ended, or the current one for a cell without a call;
    /// `None` if the call ended before the counting began.
    fn second(self, times: Times) -> Option<u64> {
        let ended_ns = if times.started_ns == 0 { self.now_ns } else { times.started_ns + times.run_ns };
        (ended_ns >= self.since_ns).then_some(ended_ns / SECOND_NS)
    }
}

impl Tally {
    fn merge(&mut self, other: &Self) {
        self.samples.iter_mut().zip(other.samples).for_each(|(mine, more)| *mine += more);
        self.run.merge(&other.run);
        self.queue.merge(&other.queue);
        self.groups += other.groups;
        self.groups_without_spread += other.groups_without_spread;
        for (second, count) in other.recent {
            self.add_recent(second, count);
        }
    }

    fn add_recent(&mut self, second: u64, count: u64) {
        let slot = &mut self.recent[second as usize % RING];
        if slot.0 < second {
            *slot = (second, count);
        } else if slot.0 == second {
            slot.1 += count;
        }
    }

    fn add_outcome(&mut self, outcome: &Outcome, window: Window) {
        self.samples[outcome.status as usize] += 1;
        if let Some(second) = window.second(outcome.times) {
            self.add_recent(second, 1);
        }
    }

    fn add_group(&mut self, batch: &Batch, function: FunctionId, group: usize, window: Window) {
        let spec = &batch.functions()[function];
        let size = batch.group_size();
        let first = group * size;
        let (mut lowest, mut highest, mut rewards) = (f32::INFINITY, f32::NEG_INFINITY, 0);
        for sample in first..first + size {
            let Some((outcome, _)) = batch.grid().read(sample, function) else { continue };
            self.add_outcome(&outcome, window);
            #[expect(clippy::cast_possible_truncation, reason = "values beyond float32 never get into the grid")]
            let reward = match outcome.status {
                Status::Ok => outcome.value as f32,
                _ => batch.shown(sample, function).0,
            };
            if !reward.is_nan() {
                rewards += 1;
                lowest = lowest.min(reward);
                highest = highest.max(reward);
            }
            let begins_call = match spec.shape {
                Shape::Sample => true,
                Shape::Group => sample == first,
                Shape::Batch => sample == 0,
            };
            if begins_call && outcome.times.started_ns != 0 {
                self.run.add(outcome.times.run_ns);
                self.queue.add(outcome.times.started_ns.saturating_sub(batch.ready_ns(sample, function)));
            }
        }
        if rewards > 1 {
            self.groups += 1;
            #[expect(clippy::float_cmp, reason = "no spread means equal, to the bit")]
            let flat = lowest == highest;
            self.groups_without_spread += u64::from(flat);
        }
    }
}

//! A training run as simulated events, for docs/internals/prediction.md: generation, rewards and
//! optimizer steps, in each mode of the pipeline.
//!
//! - The trainer does one thing at a time, in the order of the real one; rewards run meanwhile.
//! - Time is tokio's, run paused: a step of an hour takes the time of its events.
//! - Rewards come from [`Queue`], a simple judge, or from the engine itself ([`Engine`]), which
//!   shows that the simple one is close enough.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, HashMap, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use guerdon_core::batch::Batch;
use guerdon_core::clock::Clock;
use guerdon_core::function::Shape;
use guerdon_core::outcome::Cell;
use guerdon_core::scheduler::Scheduler;
use parking_lot::Mutex;
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};
use tokio::time::{Instant, sleep, sleep_until};

use crate::lane::{FakeLane, Room};
use crate::script::{Act, Ask};
use crate::setup::{function, spec};

/// A run: sizes and seconds of one step.
#[derive(Clone, Copy, Debug)]
pub struct Recipe {
    /// Samples of a step: whole groups of `group`, and whole groups in each of the `pieces`.
    pub samples: usize,
    pub group: usize,
    pub generation: Duration,
    pub training: Duration,
    /// Bounds of the time of a sample's reward, which is uniform in between.
    pub delays: (Duration, Duration),
    /// Rewards computed at a time.
    pub at_once: usize,
    /// Micro-steps of a batch.
    pub pieces: usize,
}

impl Recipe {
    fn groups(&self) -> usize {
        self.samples / self.group
    }

    /// The delays of a batch, the same in every mode.
    #[must_use]
    pub fn draw(&self, batch: u64) -> Vec<Duration> {
        let mut random = fastrand::Rng::with_seed(batch + 1);
        let (least, most) = self.delays;
        (0..self.samples).map(|_| least + (most - least).mul_f64(random.f64())).collect()
    }
}

/// Work that goes on while rewards are computed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Mode {
    pub mini_batch: bool,
    pub lookahead: u64,
}

/// The modes of the trainer's presets, by name.
pub const MODES: [(&str, Mode); 4] = [
    ("off", Mode { mini_batch: false, lookahead: 0 }),
    ("mini_batch", Mode { mini_batch: true, lookahead: 0 }),
    ("one_step", Mode { mini_batch: false, lookahead: 1 }),
    ("both", Mode { mini_batch: true, lookahead: 1 }),
];

/// Source of rewards.
pub trait Rewards {
    /// Begins with a batch; the receiver gets an item for each group that completes.
    fn begin(&mut self, recipe: &Recipe, batch: u64) -> UnboundedReceiver<()>;
}

/// Returns the duration of each step of a run, from one end of training to the next.
pub async fn steps(recipe: &Recipe, mode: Mode, count: u64, rewards: &mut impl Rewards) -> Vec<Duration> {
    let mut ahead: VecDeque<UnboundedReceiver<()>> = VecDeque::new();
    let mut launched = 0;
    let mut lasted = Vec::new();
    let mut since = Instant::now();
    for step in 0..count {
        while launched < count && launched <= step + mode.lookahead {
            sleep(recipe.generation).await;
            ahead.push_back(rewards.begin(recipe, launched));
            launched += 1;
        }
        let Some(mut groups) = ahead.pop_front() else { break };
        let pieces = if mode.mini_batch { recipe.pieces } else { 1 };
        for _ in 0..pieces {
            for _ in 0..recipe.groups() / pieces {
                groups.recv().await;
            }
            sleep(recipe.training / u32::try_from(pieces).unwrap_or(u32::MAX)).await;
        }
        lasted.push(since.elapsed());
        since = Instant::now();
    }
    lasted
}

/// Returns the seconds of a step in steady state: the mean, without the first steps and without the
/// last ones, during which nothing is generated ahead.
#[must_use]
pub fn steady_step(steps: &[Duration], mode: Mode) -> f64 {
    let odd = usize::try_from(mode.lookahead).unwrap_or(usize::MAX);
    let kept = steps.get(odd + 1..steps.len().saturating_sub(odd)).unwrap_or_default();
    #[expect(clippy::cast_precision_loss, reason = "a handful of steps")]
    let count = kept.len() as f64;
    kept.iter().sum::<Duration>().as_secs_f64() / count
}

/// A judge with a number of places: the oldest request comes first. The time of a reward is
/// computed at its request.
#[derive(Default)]
pub struct Queue {
    /// The time when each place becomes free, soonest first.
    places: BinaryHeap<Reverse<Instant>>,
}

impl Rewards for Queue {
    fn begin(&mut self, recipe: &Recipe, batch: u64) -> UnboundedReceiver<()> {
        let (sender, receiver) = unbounded_channel();
        let now = Instant::now();
        let mut ends: Vec<Instant> = vec![now; recipe.groups()];
        for (sample, delay) in recipe.draw(batch).into_iter().enumerate() {
            let mut start = now;
            if recipe.at_once < usize::MAX {
                let free = if self.places.len() < recipe.at_once { None } else { self.places.pop() };
                start = free.map_or(now, |Reverse(free)| free.max(now));
                self.places.push(Reverse(start + delay));
            }
            let end = &mut ends[sample / recipe.group];
            *end = (*end).max(start + delay);
        }
        ends.sort_unstable();
        tokio::spawn(async move {
            for end in ends {
                sleep_until(end).await;
                if sender.send(()).is_err() {
                    return;
                }
            }
        });
        receiver
    }
}

/// The engine, on a lane whose calls take the recipe's delays.
pub struct Engine {
    scheduler: Scheduler,
    /// Delays of each batch, by the engine's number. Written before a batch is submitted, read by
    /// the lane.
    delays: Arc<Mutex<HashMap<u64, Vec<Duration>>>>,
}

impl Engine {
    /// An engine in the current runtime, for runs of this recipe.
    #[must_use]
    pub fn start(recipe: &Recipe) -> Self {
        let delays: Arc<Mutex<HashMap<u64, Vec<Duration>>>> = Arc::default();
        let known = delays.clone();
        let room = Room { places: recipe.at_once, at_once: true, ..Room::default() };
        let lane = FakeLane::new(room, move |ask: &Ask| {
            let after = known.lock().get(&ask.batch).and_then(|delays| delays.get(ask.first)).copied();
            Act::Return { after: after.unwrap_or_default(), cells: vec![Cell::Value(1.0); ask.samples] }
        });
        let mut judge = function("judge", Shape::Sample);
        judge.policy.timeout = Duration::from_secs(86_400);
        judge.policy.concurrency = Some(recipe.at_once);
        let runtime = tokio::runtime::Handle::current();
        let scheduler = Scheduler::start(&runtime, Clock::start(), vec![judge], vec![Arc::new(lane)]);
        Self { scheduler, delays }
    }

    pub async fn close(self) {
        self.scheduler.close().await;
    }
}

impl Rewards for Engine {
    fn begin(&mut self, recipe: &Recipe, batch: u64) -> UnboundedReceiver<()> {
        let (sender, receiver) = unbounded_channel();
        // The engine numbers batches from 1.
        self.delays.lock().insert(batch + 1, recipe.draw(batch));
        match self.scheduler.submit(spec(recipe.groups(), recipe.group)) {
            Ok(batch) => drop(tokio::spawn(tell(batch, sender))),
            // the run then ends without its rewards, and its comparison fails
            Err(_) => drop(sender),
        }
        receiver
    }
}

/// Passes on a batch's groups as they complete, with a resolution of five milliseconds.
async fn tell(batch: Arc<Batch>, sender: UnboundedSender<()>) {
    while !batch.is_exhausted() {
        while batch.take_group().is_some() {
            if sender.send(()).is_err() {
                return;
            }
        }
        sleep(Duration::from_millis(5)).await;
    }
}

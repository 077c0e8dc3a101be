//! Faults in a simulation.

use std::collections::BTreeSet;
use std::time::Duration;

pub(super) const MS: Duration = Duration::from_millis(1);
/// Samples of a call, where it has several.
pub(super) const GATHERED: usize = 8;

/// Process that a poison kills, as its worker finds it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Target {
    Parent,
    Loader,
    Zygote,
}

#[derive(Clone, Debug)]
pub(super) struct Plan {
    pub(super) seed: u64,
    pub(super) samples: usize,
    pub(super) workers: usize,
    pub(super) poisons: BTreeSet<usize>,
    pub(super) target: Target,
    /// Calls whose worker dies by itself, the first time.
    pub(super) flaky: BTreeSet<usize>,
    /// When the zygote is killed from outside.
    pub(super) kills: Vec<Duration>,
    pub(super) longest: Duration,
    pub(super) deadly_after: Duration,
    /// Loading time of the functions.
    pub(super) load: Duration,
    pub(super) retries: u16,
    pub(super) gathered: bool,
    pub(super) isolated: bool,
    pub(super) cancel_after: Option<Duration>,
}

impl Plan {
    pub(super) fn new(seed: u64, target: Target, poisons: usize) -> Self {
        let mut draws = fastrand::Rng::with_seed(seed);
        Self {
            seed,
            samples: 200,
            workers: 96,
            poisons: (0..poisons).map(|_| draws.usize(0..200)).collect(),
            target,
            flaky: BTreeSet::new(),
            kills: Vec::new(),
            longest: draws.u32(0..800) * MS,
            deadly_after: draws.u32(0..100) * MS,
            load: draws.u32(10..3000) * MS,
            retries: draws.u16(0..3),
            gathered: false,
            isolated: false,
            cancel_after: None,
        }
    }

    /// The most processes that the poisons may end. One alone that kills its parent ends two.
    pub(super) fn bound(&self) -> usize {
        let alone = self.poisons.len() == 1 && self.kills.is_empty();
        let once = if self.target == Target::Parent && alone { 2 } else { 3 };
        let parts = if self.gathered { GATHERED.ilog2() as usize } else { 0 };
        self.poisons.len() * (once + parts)
    }
}

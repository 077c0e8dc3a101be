//! Next steps of the zygote's supervisor, and the number of its loaders.
//!
//! - A reap waits for at most one round of forks.
//! - A round is one fork by each loader; loaders are added while many forks wait.

/// Number of workers per loader: for the slots of a pool, and for calls with a fresh worker each.
const POOL_SLOTS: usize = 16;
const CALL_SLOTS: usize = 4;
/// Number of waiting forks per loader from which on another loader is made.
const WAITING: usize = 2;

/// Next step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Step {
    Reap,
    /// Make another loader.
    Clone,
    /// Fork this many workers at the same time.
    Fork(usize),
    Wait,
}

/// Returns the largest number of loaders for `workers` workers.
pub(super) fn most_loaders(workers: usize, forks_for_calls: bool) -> usize {
    workers.div_ceil(if forks_for_calls { CALL_SLOTS } else { POOL_SLOTS }).max(1)
}

/// Returns the next step, for these numbers of requests and loaders.
pub(super) fn next_step(reaps: usize, forks: usize, loaders: usize, most: usize) -> Step {
    if reaps > 0 {
        Step::Reap
    } else if forks == 0 {
        Step::Wait
    } else if loaders > 0 && loaders < most && forks > WAITING * loaders {
        Step::Clone
    } else {
        Step::Fork(forks.min(loaders.max(1)))
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use proptest::prelude::*;

    use super::*;

    /// One fork with torch loaded, and one reap.
    const FORK: Duration = Duration::from_millis(18);
    const REAP: Duration = Duration::from_micros(200);

    /// Slots whose workers die all at once, on a machine with a number of cores.
    struct Storm {
        now: Duration,
        /// When a worker died that is to be reaped, by slot.
        dead: Vec<Duration>,
        forks: usize,
        loaders: usize,
        cores: usize,
        longest_reap: Duration,
        reaped: usize,
    }

    impl Storm {
        fn new(slots: usize, cores: usize, loaders: usize) -> Self {
            Self {
                now: Duration::ZERO,
                dead: vec![Duration::ZERO; slots],
                forks: slots,
                loaders,
                cores,
                longest_reap: Duration::ZERO,
                reaped: 0,
            }
        }

        /// One step; false when there is nothing to do.
        fn step(&mut self, most: usize) -> bool {
            match next_step(self.dead.len(), self.forks, self.loaders, most) {
                Step::Wait => return false,
                Step::Reap => {
                    let died = self.dead.remove(0);
                    self.now += REAP;
                    self.longest_reap = self.longest_reap.max(self.now - died);
                    self.reaped += 1;
                }
                Step::Clone => {
                    self.now += FORK;
                    self.loaders += 1;
                }
                Step::Fork(count) => {
                    self.now += FORK * u32::try_from(count.div_ceil(self.cores)).unwrap();
                    self.forks -= count;
                }
            }
            true
        }
    }

    #[test]
    fn a_crash_of_all_192_workers_with_torch_is_over_in_two_seconds_and_loses_no_reason() {
        let (slots, most) = (192, most_loaders(192, false));
        assert_eq!(most, 12);
        for loaders in [1, most] {
            let mut storm = Storm::new(slots, 64, loaders);
            while storm.step(most) {}
            assert_eq!(storm.reaped, slots);
            assert!(storm.longest_reap < Duration::from_millis(100), "{:?}", storm.longest_reap);
            assert!(storm.now < Duration::from_secs(2), "{:?} with {loaders} loaders", storm.now);
        }
    }

    #[test]
    fn on_two_cores_a_storm_takes_what_its_forks_take() {
        let mut storm = Storm::new(192, 2, 1);
        while storm.step(12) {}
        let bound = FORK * 192 / 2;
        assert!(storm.now < bound * 3 / 2, "{:?} of {bound:?}", storm.now);
        assert!(storm.longest_reap < Duration::from_millis(100));
    }

    #[test]
    fn calls_with_a_worker_each_have_more_loaders_than_a_pool() {
        assert_eq!([1, 2, 16, 192].map(|workers| most_loaders(workers, false)), [1, 1, 1, 12]);
        assert_eq!([1, 2, 16, 192].map(|workers| most_loaders(workers, true)), [1, 1, 4, 48]);
    }

    proptest! {
        /// Workers die at any time while forks wait: none is reaped later than a round and the
        /// reaps before it take; all are forked again in the end.
        #[test]
        fn no_reap_waits_behind_more_than_one_round(
            deaths in prop::collection::vec((0usize..40, 1usize..24), 1..60), cores in 1usize..64
        ) {
            let most = most_loaders(192, false);
            let mut storm = Storm::new(0, cores, 1);
            let mut crowd = 0;
            for (steps, count) in deaths {
                storm.dead.extend(std::iter::repeat_n(storm.now, count));
                storm.forks += count;
                crowd = crowd.max(storm.dead.len());
                for _ in 0..steps {
                    storm.step(most);
                }
            }
            while storm.step(most) {}
            let round = FORK * u32::try_from(most.div_ceil(cores)).unwrap();
            prop_assert!(storm.longest_reap <= round + REAP * u32::try_from(crowd + 24).unwrap());
            prop_assert_eq!((storm.forks, storm.dead.len()), (0, 0));
        }
    }
}

//! Days of a pool, good and bad, in steps of five milliseconds; there is always work.

use proptest::prelude::*;

use super::*;

const SLOTS: usize = 8;
const STEP: Duration = Duration::from_millis(5);
/// The longest pause between two tries to widen, and then some.
const WIDE: Duration = Duration::from_secs(35);

enum Phase {
    Cold,
    Widens,
    Waits { until: Instant, by_itself: bool },
    Starts { until: Instant, start: Start },
    Ready { _start: Start },
}

/// A pool on a machine with room for a number of processes.
struct Day {
    pool: Arc<PoolStarts>,
    slots: Vec<Phase>,
    began: Instant,
    now: Instant,
    room: usize,
    /// Loading time of a worker, and whether it dies of it.
    loads: Duration,
    deadly: bool,
    tries: usize,
    warnings: Vec<usize>,
    broke: Option<Duration>,
}

impl Day {
    fn new(room: usize) -> Self {
        let now = Instant::now();
        Self {
            pool: Arc::default(),
            slots: (0..SLOTS).map(|_| Phase::Cold).collect(),
            began: now,
            now,
            room,
            loads: Duration::from_millis(20),
            deadly: false,
            tries: 0,
            warnings: Vec::new(),
            broke: None,
        }
    }

    fn ready(&self) -> usize {
        self.slots.iter().filter(|slot| matches!(slot, Phase::Ready { .. })).count()
    }

    fn processes(&self) -> usize {
        self.slots.iter().filter(|slot| matches!(slot, Phase::Ready { .. } | Phase::Starts { .. })).count()
    }

    fn fail(&mut self, slot: usize, died: bool) {
        let why = if died { "a worker was killed" } else { "os error 11" };
        let failed = self.pool.failed(slot, self.now, Failure { why, died, others: false });
        self.warnings.extend(failed.narrowed);
        if failed.breaks {
            self.broke.get_or_insert(self.now - self.began);
        }
        let (wait, by_itself) = match failed.next {
            Next::StandBack => (Duration::ZERO, false),
            Next::Widen(wait) => (wait, false),
            Next::Again(wait) => (wait, true),
        };
        self.slots[slot] = Phase::Waits { until: self.now + wait, by_itself };
    }

    fn start(&mut self, slot: usize) {
        self.tries += 1;
        if self.processes() < self.room {
            let start = self.pool.started(slot);
            self.slots[slot] = Phase::Starts { until: self.now + self.loads, start };
        } else {
            self.fail(slot, false);
        }
    }

    fn step(&mut self) {
        self.now += STEP;
        for slot in 0..SLOTS {
            match std::mem::replace(&mut self.slots[slot], Phase::Cold) {
                Phase::Cold if self.pool.is_narrow() => {}
                Phase::Cold | Phase::Widens => self.start(slot),
                Phase::Waits { until, by_itself } if self.now >= until => {
                    if by_itself {
                        self.start(slot);
                    } else if self.pool.widens(slot) {
                        self.slots[slot] = Phase::Widens;
                    }
                }
                Phase::Starts { until, start } if self.now >= until => {
                    if self.deadly {
                        drop(start);
                        self.fail(slot, true);
                    } else {
                        let mut start = start;
                        start.ready();
                        self.slots[slot] = Phase::Ready { _start: start };
                    }
                }
                waits => self.slots[slot] = waits,
            }
        }
        let broken = self.pool.broken().is_some();
        assert!(!broken || self.ready() == 0, "it refuses calls with {} workers", self.ready());
    }

    fn run(&mut self, time: Duration) {
        let end = self.now + time;
        while self.now < end {
            self.step();
        }
    }

    /// A worker that serves dies; its slot starts another at once.
    fn kill(&mut self, slot: usize) {
        if matches!(self.slots[slot], Phase::Ready { .. }) {
            self.slots[slot] = Phase::Cold;
            self.start(slot);
        }
    }

    fn kill_all(&mut self) {
        (0..SLOTS).for_each(|slot| self.kill(slot));
    }
}

#[test]
fn with_room_for_all_they_start_at_once() {
    let mut day = Day::new(SLOTS);
    day.run(Duration::from_millis(50));
    assert_eq!((day.ready(), day.tries, day.warnings.len()), (SLOTS, SLOTS, 0));
    day.kill_all();
    day.run(Duration::from_millis(50));
    assert_eq!((day.ready(), day.warnings.len()), (SLOTS, 0));
}

#[test]
fn with_room_for_one_it_runs_with_one_says_so_once_and_seldom_tries() {
    let mut day = Day::new(1);
    day.run(Duration::from_secs(600));
    assert_eq!((day.ready(), day.warnings.as_slice(), day.broke), (1, [1].as_slice(), None));
    assert!(day.tries < 60, "{} tries", day.tries);
    day.room = SLOTS;
    day.run(WIDE);
    assert_eq!((day.ready(), day.warnings.len()), (SLOTS, 1));
}

#[test]
fn without_any_room_calls_fail_soon_and_run_again_once_there_is_some() {
    let mut day = Day::new(0);
    day.run(Duration::from_secs(4));
    let broke = day.broke.unwrap();
    assert!(broke >= PATIENCE && broke < 2 * PATIENCE, "{broke:?}");
    assert_eq!(day.pool.broken().unwrap(), "no worker process could be started: os error 11");
    day.run(Duration::from_secs(3600));
    assert!(day.tries < 2000, "{} tries in an hour", day.tries);
    day.room = 3;
    day.run(Duration::from_secs(4));
    assert_eq!((day.ready(), day.pool.broken()), (3, None));
    day.room = SLOTS;
    day.run(WIDE);
    assert_eq!(day.ready(), SLOTS);
}

#[test]
fn the_last_worker_of_a_narrow_pool_is_replaced_at_once() {
    let mut day = Day::new(1);
    day.run(Duration::from_secs(300));
    for _ in 0..5 {
        day.kill_all();
        day.run(Duration::from_millis(100));
        assert_eq!(day.ready(), 1);
    }
    // Its place is not free at once, as its process is not gone yet.
    day.room = 0;
    day.kill_all();
    day.run(Duration::from_millis(300));
    day.room = 1;
    day.run(Duration::from_secs(1));
    assert_eq!((day.ready(), day.broke), (1, None));
}

#[test]
fn a_narrow_pool_that_loses_its_last_worker_for_good_fails_calls_until_it_has_one() {
    let mut day = Day::new(1);
    day.run(Duration::from_secs(300));
    day.room = 0;
    day.kill_all();
    day.run(Duration::from_secs(5));
    assert!(day.pool.broken().is_some());
    day.room = 1;
    day.run(Duration::from_secs(4));
    assert_eq!((day.ready(), day.pool.broken()), (1, None));
}

#[test]
fn workers_that_die_while_loading_fail_calls_though_one_is_always_loading() {
    let mut day = Day::new(SLOTS);
    (day.deadly, day.loads) = (true, Duration::from_secs(3));
    day.run(Duration::from_secs(15));
    assert!(day.pool.broken().is_some());
    day.deadly = false;
    day.run(Duration::from_secs(10));
    assert_eq!((day.ready(), day.pool.broken()), (SLOTS, None));
}

#[test]
fn one_that_loads_for_long_is_waited_for_though_others_are_refused() {
    let mut day = Day::new(1);
    day.loads = Duration::from_secs(60);
    day.run(Duration::from_secs(61));
    assert_eq!((day.ready(), day.broke), (1, None));
}

#[test]
fn one_process_that_dies_as_it_starts_is_no_reason_for_a_warning() {
    let pool = Arc::new(PoolStarts::default());
    let mut serves = pool.started(0);
    serves.ready();
    let (now, died) = (Instant::now(), Failure { why: "killed", died: true, others: false });
    assert_eq!(pool.failed(1, now, died).narrowed, None);
    assert_eq!(pool.failed(1, now + Duration::from_secs(1), died).narrowed, Some(1));
    assert_eq!(pool.failed(1, now + Duration::from_secs(2), died).narrowed, None);
}

#[test]
fn a_refusal_beside_workers_that_are_about_to_be_ready_is_reported_and_a_death_is_not() {
    let pool = Arc::new(PoolStarts::default());
    let now = Instant::now();
    let [refused, died] = [false, true].map(|died| Failure { why: "os error 24", died, others: false });
    assert_eq!(pool.failed(0, now, refused).narrowed, None, "there is none yet");
    let _starting = [pool.started(1), pool.started(2)];
    assert_eq!(pool.failed(3, now, died).narrowed, None);
    assert_eq!(pool.failed(4, now, refused).narrowed, Some(2));
    assert_eq!(pool.failed(5, now, refused).narrowed, None, "once");
}

#[test]
fn workers_of_one_call_each_are_never_many_which_is_reported_once() {
    // Each is ready for an instant; where there is room for three, more are asked for all day.
    let mut day = Day::new(3);
    for _ in 0..400 {
        day.run(Duration::from_millis(25));
        day.kill_all();
    }
    assert_eq!((day.warnings.len(), day.broke), (1, None));
    assert!((1..=3).contains(&day.warnings[0]), "{:?}", day.warnings);
}

#[test]
fn a_pool_that_can_not_start_one_waits_longer_while_others_can_make_room() {
    let pool = Arc::new(PoolStarts::default());
    let began = Instant::now();
    for second in 0..60 {
        let now = began + Duration::from_secs(second);
        let failed = pool.failed(0, now, Failure { why: "os error 11", died: false, others: true });
        assert!(!failed.breaks && matches!(failed.next, Next::Again(_)), "after {second} s");
    }
    // Workers of this pool can't be started, however others fare: its calls don't wait for ever.
    let now = began + PATIENCE_WITH_OTHERS;
    assert!(pool.failed(0, now, Failure { why: "killed", died: true, others: true }).breaks);
    assert!(pool.broken().is_some());
}

#[test]
fn a_pool_that_others_can_not_help_any_more_fails_its_calls_at_once() {
    let pool = Arc::new(PoolStarts::default());
    let began = Instant::now();
    for second in 0..30 {
        let now = began + Duration::from_secs(second);
        assert!(!pool.failed(0, now, Failure { why: "os error 11", died: false, others: true }).breaks);
    }
    let now = began + Duration::from_secs(30);
    assert!(pool.failed(0, now, Failure { why: "os error 11", died: false, others: false }).breaks);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    /// Room comes and goes, workers die: never without a worker for long where there is room, never
    /// more than a few tries, at most one warning, and wide again in the end.
    #[test]
    fn pool_fills_its_room_on_any_day(
        hours in prop::collection::vec((0usize..=SLOTS, 0u64..20_000, any::<bool>(), prop::option::of(0..SLOTS)), 1..30)
    ) {
        let mut day = Day::new(SLOTS);
        for (room, millis, deadly, killed) in hours {
            (day.room, day.deadly) = (room, deadly);
            if let Some(slot) = killed {
                day.kill(slot);
            }
            let before = day.tries;
            day.run(Duration::from_millis(millis));
            prop_assert!(day.tries - before < 60 + usize::try_from(millis).unwrap() / 100, "{} tries", day.tries - before);
            if room > 0 && !deadly && millis > 4000 {
                prop_assert!(day.ready() > 0, "none is ready after {millis} ms with room for {room}");
            }
        }
        (day.room, day.deadly) = (SLOTS, false);
        day.run(WIDE);
        prop_assert_eq!(day.ready(), SLOTS);
        prop_assert!(day.warnings.len() <= 1);
    }
}

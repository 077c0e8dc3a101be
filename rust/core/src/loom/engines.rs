use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use super::{beside, explore};
use crate::limits::{AcquireResult, Feedback, History, Limit, Limiter, Permit, Rules, Tokens};
use crate::sync::Mutex;

const S: u64 = 1_000_000_000;

/// A folder that goes with its owner.
struct TempFolder(PathBuf);

impl TempFolder {
    fn new() -> Self {
        Self(std::env::temp_dir().join(format!("guerdon-loom-{:016x}", fastrand::u64(..))))
    }
}

impl Drop for TempFolder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// Engines with one limit: each has its limiter, and they share a file.
struct Fleet {
    limiters: Vec<Arc<Limiter>>,
    /// Permits out, and the most that there were. A permit is counted before it ends.
    out: AtomicUsize,
    peak: AtomicUsize,
    _folder: TempFolder,
}

impl Fleet {
    fn new(engines: usize, concurrency: usize) -> Arc<Self> {
        let folder = TempFolder::new();
        let rules = Rules { concurrency: Some(concurrency), ..Rules::default() };
        // One engine keeps its limit in memory.
        let key = (engines > 1).then(|| ("judge".into(), folder.0.join("key")));
        let limit = Limit { rules, key, tokens: None };
        let limiters = (0..engines).filter_map(|_| Limiter::all([Some(&limit)]).pop().flatten()).collect();
        Arc::new(Self { limiters, out: AtomicUsize::new(0), peak: AtomicUsize::new(0), _folder: folder })
    }

    /// A permit, if one may be had now.
    fn go(&self, engine: usize, now_ns: u64) -> Option<Permit> {
        let AcquireResult::Permit(permit) = self.limiters[engine].acquire(now_ns, Tokens::Estimated(None)) else {
            return None;
        };
        self.peak.fetch_max(self.out.fetch_add(1, Ordering::Relaxed) + 1, Ordering::Relaxed);
        Some(permit)
    }

    fn end(&self, permit: Permit, now_ns: u64, feedback: Feedback) -> bool {
        self.out.fetch_sub(1, Ordering::Relaxed);
        permit.end(now_ns, feedback, None, History::default())
    }

    fn give_back(&self, permit: Permit) {
        self.out.fetch_sub(1, Ordering::Relaxed);
        drop(permit);
    }

    fn flush(&self, now_ns: u64) {
        self.limiters.iter().for_each(|limiter| assert!(limiter.flush(now_ns), "nobody else has the file"));
    }

    fn peak(&self) -> usize {
        self.peak.load(Ordering::Relaxed)
    }

    /// Opens the circuit breaker, and says when trials may go.
    fn fail_until_open(&self) -> u64 {
        for _ in 0..5 {
            let permit = self.go(0, S).expect("the breaker is closed");
            self.end(permit, S, Feedback::Failed);
        }
        assert!(self.limiters[0].breaker_is_open());
        assert!(self.go(0, S).is_none(), "it is open");
        2 * S
    }
}

fn job(fleet: &Arc<Fleet>, work: impl FnOnce(&Fleet) + Send + 'static) -> Box<dyn FnOnce() + Send> {
    let fleet = fleet.clone();
    Box::new(move || work(&fleet))
}

/// Takes a permit and ends it.
fn call(fleet: &Arc<Fleet>, engine: usize, now_ns: u64) -> Box<dyn FnOnce() + Send> {
    job(fleet, move |fleet| {
        if let Some(permit) = fleet.go(engine, now_ns) {
            fleet.end(permit, now_ns, Feedback::Ok);
        }
    })
}

/// Threads of one engine take the only place: one gets it at a time.
#[test]
fn threads_that_ask_for_one_place() {
    for engines in [1, 2] {
        explore(move || {
            let fleet = Fleet::new(engines, 1);
            let held = Arc::new(Mutex::new(Vec::new()));
            let ask = || {
                let held = held.clone();
                job(&fleet, move |fleet| {
                    let permit = fleet.go(0, S);
                    held.lock().extend(permit);
                })
            };
            beside(vec![ask(), ask()]);
            assert_eq!((fleet.peak(), held.lock().len()), (1, 1));
            let permit = held.lock().pop().expect("one has it");
            fleet.end(permit, S, Feedback::Ok);
        });
    }
}

/// Engines take and end calls beside each other: no more are under way than may be, all places are
/// free again, and each engine gets one.
#[test]
fn engines_that_share_places() {
    for concurrency in [1, 2] {
        explore(move || {
            let fleet = Fleet::new(2, concurrency);
            beside(vec![call(&fleet, 0, S), call(&fleet, 1, S), call(&fleet, 1, S)]);
            assert!(fleet.peak() <= concurrency, "{} at a time", fleet.peak());
            fleet.flush(S);
            for engine in [0, 1] {
                // The other engine's claim, that it waits, is over by then.
                let permit = fleet.go(engine, 2 * S).expect("a place was lost");
                fleet.end(permit, 2 * S, Feedback::Ok);
                fleet.flush(2 * S);
            }
        });
    }
}

/// One engine has all places and ends a call while another comes: once that waits, the place is
/// its own, and the first does not take it back.
#[test]
fn an_engine_that_comes_beside_a_call_that_ends() {
    explore(|| {
        let fleet = Fleet::new(2, 2);
        let [one, two] = [(), ()].map(|()| fleet.go(0, S).expect("both places are free"));
        let waits = Arc::new(AtomicBool::new(false));
        let waited = waits.clone();
        let again = job(&fleet, move |fleet| {
            fleet.end(one, S, Feedback::Ok);
            let waits = waited.load(Ordering::Relaxed);
            if let Some(permit) = fleet.go(0, S) {
                assert!(!waits, "it took back what another waits for");
                fleet.end(permit, S, Feedback::Ok);
            }
        });
        let comes = job(&fleet, move |fleet| match fleet.go(1, S) {
            Some(permit) => {
                fleet.end(permit, S, Feedback::Ok);
            }
            None => waits.store(true, Ordering::Relaxed),
        });
        beside(vec![again, comes]);
        assert!(fleet.peak() <= 2);
        fleet.flush(S);
        let mine = fleet.go(1, S).expect("it has less than its share, and a place is free");
        assert!(fleet.go(0, S).is_none(), "the first has its share in hand, and the other the rest");
        fleet.end(mine, S, Feedback::Ok);
        fleet.end(two, S, Feedback::Ok);
    });
}

/// A permit is given back unused while another thread of its engine flushes, and another engine
/// asks.
#[test]
fn a_permit_that_is_given_back_beside_a_flush() {
    explore(|| {
        let fleet = Fleet::new(2, 1);
        let permit = fleet.go(0, S).expect("the place is free");
        beside(vec![
            job(&fleet, move |fleet| fleet.give_back(permit)),
            job(&fleet, |fleet| fleet.flush(S)),
            call(&fleet, 1, S),
        ]);
        assert_eq!(fleet.peak(), 1);
        fleet.flush(S);
        assert!(fleet.go(1, S).is_some(), "the place was lost");
    });
}

/// The circuit breaker is half-open: of all that ask one goes, and the next once that has ended.
#[test]
fn trials_of_a_half_open_breaker() {
    explore(|| {
        let fleet = Fleet::new(1, 8);
        let now_ns = fleet.fail_until_open();
        fleet.peak.store(0, Ordering::Relaxed);
        let held = Arc::new(Mutex::new(Vec::new()));
        let ask = || {
            let held = held.clone();
            job(&fleet, move |fleet| {
                let permit = fleet.go(0, now_ns);
                held.lock().extend(permit);
            })
        };
        beside(vec![ask(), ask(), ask()]);
        assert_eq!(fleet.peak(), 1, "so many trials at a time");
        let permit = held.lock().pop().expect("one went");
        fleet.end(permit, now_ns, Feedback::Ok);
        // Twice as many may go now.
        ask()();
        ask()();
        ask()();
        assert_eq!(held.lock().len(), 2);
        held.lock().drain(..).for_each(|permit| {
            fleet.end(permit, now_ns, Feedback::Ok);
        });
    });
}

/// End of a trial beside other requests.
#[derive(Clone, Copy, PartialEq)]
enum Trial {
    Answered,
    Failed,
    GivenBack,
}

fn a_trial_that_ends_beside_others(how: Trial, engines: usize) {
    explore(move || {
        let fleet = Fleet::new(engines, 8);
        let now_ns = fleet.fail_until_open();
        fleet.peak.store(0, Ordering::Relaxed);
        let permit = fleet.go(0, now_ns).expect("a trial may go");
        let held = Arc::new(Mutex::new(Vec::new()));
        let ask = |engine: usize| {
            let held = held.clone();
            job(&fleet, move |fleet| {
                let permit = fleet.go(engine, now_ns);
                held.lock().extend(permit);
            })
        };
        let end = job(&fleet, move |fleet| match how {
            Trial::Answered => assert!(!fleet.end(permit, now_ns, Feedback::Ok)),
            Trial::Failed => assert!(fleet.end(permit, now_ns, Feedback::Failed), "a trial is excused"),
            Trial::GivenBack => fleet.give_back(permit),
        });
        beside(vec![end, ask(0), ask(engines - 1)]);
        let most = match how {
            Trial::Answered => 2,
            Trial::Failed => 0,
            Trial::GivenBack => 1,
        };
        assert!(held.lock().len() <= most, "{} trials", held.lock().len());
        fleet.flush(now_ns);
        // A permit that was not taken beside the end is there now, and no more than one.
        while let Some(permit) = fleet.go(0, now_ns) {
            held.lock().push(permit);
        }
        assert_eq!(held.lock().len(), most, "a trial was lost, or one too many went");
        held.lock().drain(..).for_each(|permit| {
            fleet.end(permit, now_ns, Feedback::Ok);
        });
    });
}

#[test]
fn a_trial_that_is_answered_beside_others() {
    a_trial_that_ends_beside_others(Trial::Answered, 1);
}

#[test]
fn a_trial_that_fails_beside_others() {
    a_trial_that_ends_beside_others(Trial::Failed, 1);
}

#[test]
fn a_trial_that_is_given_back_beside_others() {
    a_trial_that_ends_beside_others(Trial::GivenBack, 1);
}

#[test]
fn a_trial_that_is_given_back_beside_another_engine() {
    a_trial_that_ends_beside_others(Trial::GivenBack, 2);
}

/// A second request of a call asks beside first ones, and beside the call's end: what goes beyond
/// the places is one, and all places are free again.
#[test]
fn a_second_request_beside_its_call() {
    explore(|| {
        let fleet = Fleet::new(1, 1);
        let first = fleet.go(0, S).expect("the place is free");
        let second = first.another(S).expect("it may go beyond");
        beside(vec![
            job(&fleet, move |fleet| {
                fleet.end(first, S, Feedback::Ok);
            }),
            Box::new(move || drop(second)),
            job(&fleet, |fleet| {
                if let Some(permit) = fleet.go(0, S) {
                    fleet.end(permit, S, Feedback::Ok);
                }
            }),
        ]);
        let permit = fleet.go(0, S).expect("the place was lost");
        assert!(fleet.go(0, S).is_none(), "two have one place");
        fleet.end(permit, S, Feedback::Ok);
    });
}

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use guerdon_testkit::TempFolder;

use super::super::breaker::History;
use super::super::feedback::Feedback;
use super::super::limiter::{AcquireResult, Limit, Limiter, Permit};
use super::super::rate_limiter::{Rules, Tokens};
use super::{S, file};

fn limiter(limit: &Limit) -> Arc<Limiter> {
    Limiter::all([Some(limit)]).pop().flatten().unwrap()
}

fn keyed(folder: &TempFolder, rules: Rules) -> Limit {
    Limit { rules, key: Some(("judge".into(), file(folder))), tokens: None }
}

fn go(limiter: &Arc<Limiter>, now_ns: u64) -> Option<Permit> {
    match limiter.acquire(now_ns, Tokens::Estimated(None)) {
        AcquireResult::Permit(permit) => Some(permit),
        _ => None,
    }
}

#[test]
fn functions_with_one_key_share_a_limiter() {
    let folder = TempFolder::new();
    let (shared, own) = (keyed(&folder, Rules::default()), Limit::default());
    let limiters = Limiter::all([Some(&shared), None, Some(&own), Some(&shared), Some(&own)]);
    let same = |a: usize, b: usize| Arc::ptr_eq(limiters[a].as_ref().unwrap(), limiters[b].as_ref().unwrap());
    assert!(same(0, 3) && !same(2, 4) && !same(0, 2) && limiters[1].is_none());
}

#[test]
fn engines_with_one_key_share_its_limit() {
    let folder = TempFolder::new();
    let limit = keyed(&folder, Rules { concurrency: Some(3), ..Rules::default() });
    let (one, two) = (limiter(&limit), limiter(&limit));
    let mut held: Vec<Permit> = [&one, &two, &one].into_iter().filter_map(|limiter| go(limiter, S)).collect();
    assert_eq!(held.len(), 3);
    assert!(go(&one, S).is_none() && go(&two, S).is_none());
    // Permits that another process gives back are polled for: nobody tells.
    assert!(
        matches!(two.acquire(S, Tokens::Estimated(None)), AcquireResult::Wait { until_ns, .. } if until_ns < S + S / 10)
    );
    held.pop().unwrap().end(S, Feedback::Ok, None, History::default());
    assert!(one.has_unwritten() && one.flush(S) && !one.has_unwritten());
    let third = go(&two, S);
    assert!(third.is_some() && go(&one, S).is_none());
    // One that was never used is written with the next look.
    drop(third);
    assert!(two.flush(S) && go(&one, S).is_some());
}

#[test]
fn retry_after_of_one_engine_holds_for_all() {
    let folder = TempFolder::new();
    let limit = keyed(&folder, Rules { concurrency: Some(3), ..Rules::default() });
    let (one, two) = (limiter(&limit), limiter(&limit));
    go(&one, S).unwrap().end(S, Feedback::Throttled(Some(Duration::from_secs(5))), None, History::default());
    assert!(go(&two, S).is_none() && go(&two, 6 * S - 1).is_none() && go(&two, 6 * S).is_some());
}

#[test]
fn an_end_that_cannot_be_written_is_written_later() {
    let folder = TempFolder::new();
    let limit = keyed(&folder, Rules { concurrency: Some(1), ..Rules::default() });
    let (one, two) = (limiter(&limit), limiter(&limit));
    let permit = go(&one, S).unwrap();
    let busy = std::fs::File::open(file(&folder)).unwrap();
    rustix::fs::flock(&busy, rustix::fs::FlockOperation::LockExclusive).unwrap();
    permit.end(S, Feedback::Ok, None, History::default());
    assert!(!one.flush(S));
    assert!(
        matches!(one.acquire(S, Tokens::Estimated(None)), AcquireResult::Wait { until_ns, on_release: false } if until_ns < S + S / 100)
    );
    drop(busy);
    assert!(go(&two, S).is_none());
    assert!(one.flush(S));
    assert!(go(&two, S).is_some());
}

#[test]
fn a_file_that_cannot_be_used_refuses_and_says_so() {
    let limit = Limit { key: Some(("judge".into(), "/proc/nowhere/key".into())), ..Limit::default() };
    match limiter(&limit).acquire(S, Tokens::Estimated(None)) {
        AcquireResult::Refused(why) => assert!(why.contains("judge") && why.contains("/proc/nowhere/key"), "{why}"),
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_file_that_stays_locked_refuses_and_says_so() {
    let folder = TempFolder::new();
    let limit = keyed(&folder, Rules { rpm: Some(6000.0), ..Rules::default() });
    let (_, path) = limit.key.clone().unwrap();
    let limiter = limiter(&limit);
    drop(go(&limiter, S).unwrap());
    let other = std::fs::File::open(path).unwrap();
    rustix::fs::flock(&other, rustix::fs::FlockOperation::LockExclusive).unwrap();
    let asked = |at_ns| limiter.acquire(at_ns, Tokens::Estimated(None));
    assert!(matches!(asked(2 * S), AcquireResult::Wait { .. }));
    // No engine asked in between: it may have been free.
    for second in 100..=159 {
        assert!(matches!(asked(second * S), AcquireResult::Wait { .. }), "{second}");
    }
    match asked(160 * S) {
        AcquireResult::Refused(why) => assert!(why.contains("locked for 60 s"), "{why}"),
        other => panic!("{other:?}"),
    }
    drop(other);
    assert!(matches!(asked(160 * S), AcquireResult::Permit(_)));
}

#[test]
fn engines_never_have_more_in_flight_than_the_key_allows() {
    let folder = TempFolder::new();
    let limit = keyed(&folder, Rules { concurrency: Some(5), ..Rules::default() });
    let (inside, most, done) = (AtomicUsize::new(0), AtomicUsize::new(0), AtomicUsize::new(0));
    let begun = Instant::now();
    let now_ns = || S + u64::try_from(begun.elapsed().as_nanos()).unwrap();
    std::thread::scope(|scope| {
        for engine in 0..4 {
            let (limit, inside, most, done) = (&limit, &inside, &most, &done);
            scope.spawn(move || {
                let limiter = limiter(limit);
                let mut held = Vec::new();
                let mut mine = 0;
                while mine < 300 {
                    limiter.flush(now_ns());
                    if let Some(permit) = go(&limiter, now_ns()) {
                        most.fetch_max(inside.fetch_add(1, Ordering::SeqCst) + 1, Ordering::SeqCst);
                        held.push(permit);
                        mine += 1;
                    }
                    if held.len() > engine || (mine == 300 && !held.is_empty()) || fastrand::bool() {
                        for permit in held.drain(..) {
                            inside.fetch_sub(1, Ordering::SeqCst);
                            permit.end(now_ns(), Feedback::Ok, None, History::default());
                            done.fetch_add(1, Ordering::SeqCst);
                        }
                    }
                }
                while !limiter.flush(now_ns()) {
                    std::thread::yield_now();
                }
            });
        }
    });
    assert_eq!(done.load(Ordering::SeqCst), 1200);
    assert!((2..=5).contains(&most.load(Ordering::SeqCst)), "{most:?}");
    // All is given back.
    let after = limiter(&limit);
    let permits: Vec<Permit> = (0..5).filter_map(|_| go(&after, now_ns())).collect();
    assert_eq!(permits.len(), 5);
}

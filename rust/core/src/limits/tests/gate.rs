use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use super::super::book::{Heard, Rules, Tokens};
use super::super::gate::{Asked, Gate, Limit, Permit};
use super::Folder;

const S: u64 = 1_000_000_000;

fn gate(limit: &Limit) -> Arc<Gate> {
    Gate::all([Some(limit)]).pop().flatten().unwrap()
}

fn keyed(folder: &Folder, rules: Rules) -> Limit {
    Limit { rules, key: Some(("judge".into(), folder.file())), tokens: None }
}

fn go(gate: &Arc<Gate>, now_ns: u64) -> Option<Permit> {
    match gate.ask(now_ns, Tokens::About(None)) {
        Asked::Go(permit) => Some(permit),
        _ => None,
    }
}

#[test]
fn t1_functions_with_one_key_share_a_gate() {
    let folder = Folder::new();
    let (shared, own) = (keyed(&folder, Rules::default()), Limit::default());
    let gates = Gate::all([Some(&shared), None, Some(&own), Some(&shared), Some(&own)]);
    let same = |a: usize, b: usize| Arc::ptr_eq(gates[a].as_ref().unwrap(), gates[b].as_ref().unwrap());
    assert!(same(0, 3) && !same(2, 4) && !same(0, 2) && gates[1].is_none());
}

#[test]
fn t1_engines_with_one_key_share_what_it_allows() {
    let folder = Folder::new();
    let limit = keyed(&folder, Rules { concurrency: Some(3), ..Rules::default() });
    let (one, two) = (gate(&limit), gate(&limit));
    let mut held: Vec<Permit> = [&one, &two, &one].into_iter().filter_map(|gate| go(gate, S)).collect();
    assert_eq!(held.len(), 3);
    assert!(go(&one, S).is_none() && go(&two, S).is_none());
    // What another gives back is looked for again and again: nobody tells.
    assert!(matches!(two.ask(S, Tokens::About(None)), Asked::Wait { until_ns, .. } if until_ns < S + S / 10));
    held.pop().unwrap().end(S, Heard::Answer, None);
    assert!(one.owes() && one.settle(S) && !one.owes());
    let third = go(&two, S);
    assert!(third.is_some() && go(&one, S).is_none());
    // One that was never used is written with the next look.
    drop(third);
    assert!(two.settle(S) && go(&one, S).is_some());
}

#[test]
fn t1_one_is_told_and_all_wait() {
    let folder = Folder::new();
    let limit = keyed(&folder, Rules { concurrency: Some(3), ..Rules::default() });
    let (one, two) = (gate(&limit), gate(&limit));
    go(&one, S).unwrap().end(S, Heard::Busy(Some(Duration::from_secs(5))), None);
    assert!(matches!(two.ask(S, Tokens::About(None)), Asked::Wait { until_ns, .. } if until_ns == 6 * S));
}

#[test]
fn t2_an_end_that_cannot_be_written_is_owed() {
    let folder = Folder::new();
    let limit = keyed(&folder, Rules { concurrency: Some(1), ..Rules::default() });
    let (one, two) = (gate(&limit), gate(&limit));
    let permit = go(&one, S).unwrap();
    let busy = std::fs::File::open(folder.file()).unwrap();
    rustix::fs::flock(&busy, rustix::fs::FlockOperation::LockExclusive).unwrap();
    permit.end(S, Heard::Answer, None);
    assert!(!one.settle(S));
    assert!(
        matches!(one.ask(S, Tokens::About(None)), Asked::Wait { until_ns, on_release: false } if until_ns < S + S / 100)
    );
    drop(busy);
    assert!(go(&two, S).is_none());
    assert!(one.settle(S));
    assert!(go(&two, S).is_some());
}

#[test]
fn t3_a_file_that_cannot_be_used_refuses_and_says_so() {
    let limit = Limit { key: Some(("judge".into(), "/proc/nowhere/key".into())), ..Limit::default() };
    match gate(&limit).ask(S, Tokens::About(None)) {
        Asked::Refused(why) => assert!(why.contains("judge") && why.contains("/proc/nowhere/key"), "{why}"),
        other => panic!("{other:?}"),
    }
}

#[test]
fn t3_a_file_that_stays_locked_refuses_and_says_so() {
    let folder = Folder::new();
    let limit = keyed(&folder, Rules { rpm: Some(6000.0), ..Rules::default() });
    let (_, path) = limit.key.clone().unwrap();
    let gate = gate(&limit);
    drop(go(&gate, S).unwrap());
    let other = std::fs::File::open(path).unwrap();
    rustix::fs::flock(&other, rustix::fs::FlockOperation::LockExclusive).unwrap();
    let asked = |at_ns| gate.ask(at_ns, Tokens::About(None));
    assert!(matches!(asked(2 * S), Asked::Wait { .. }));
    // In between nobody asked: it may have been free.
    for second in 100..=159 {
        assert!(matches!(asked(second * S), Asked::Wait { .. }), "{second}");
    }
    match asked(160 * S) {
        Asked::Refused(why) => assert!(why.contains("locked for 60 s"), "{why}"),
        other => panic!("{other:?}"),
    }
    drop(other);
    assert!(matches!(asked(160 * S), Asked::Go(_)));
}

#[test]
fn l3_engines_never_have_more_under_way_than_the_key_allows() {
    let folder = Folder::new();
    let limit = keyed(&folder, Rules { concurrency: Some(5), ..Rules::default() });
    let (inside, most, done) = (AtomicUsize::new(0), AtomicUsize::new(0), AtomicUsize::new(0));
    let begun = Instant::now();
    let now_ns = || S + u64::try_from(begun.elapsed().as_nanos()).unwrap();
    std::thread::scope(|scope| {
        for engine in 0..4 {
            let (limit, inside, most, done) = (&limit, &inside, &most, &done);
            scope.spawn(move || {
                let gate = gate(limit);
                let mut held = Vec::new();
                let mut mine = 0;
                while mine < 300 {
                    gate.settle(now_ns());
                    if let Some(permit) = go(&gate, now_ns()) {
                        most.fetch_max(inside.fetch_add(1, Ordering::SeqCst) + 1, Ordering::SeqCst);
                        held.push(permit);
                        mine += 1;
                    }
                    if held.len() > engine || (mine == 300 && !held.is_empty()) || fastrand::bool() {
                        for permit in held.drain(..) {
                            inside.fetch_sub(1, Ordering::SeqCst);
                            permit.end(now_ns(), Heard::Answer, None);
                            done.fetch_add(1, Ordering::SeqCst);
                        }
                    }
                }
                while !gate.settle(now_ns()) {
                    std::thread::yield_now();
                }
            });
        }
    });
    assert_eq!(done.load(Ordering::SeqCst), 1200);
    assert!((2..=5).contains(&most.load(Ordering::SeqCst)), "{most:?}");
    // All is given back.
    let after = gate(&limit);
    let permits: Vec<Permit> = (0..5).filter_map(|_| go(&after, now_ns())).collect();
    assert_eq!(permits.len(), 5);
}

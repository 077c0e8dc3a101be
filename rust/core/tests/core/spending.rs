//! A cap on what requests cost, of one engine and of several that share a file.

use std::path::{Path, PathBuf};

use guerdon_core::spending::{Admission, Cap, Cost, Reserve, SharedCap, Spending};
use proptest::prelude::*;

/// A folder that goes with the test.
struct Folder(PathBuf);

impl Folder {
    fn new() -> Self {
        Self(std::env::temp_dir().join(format!("guerdon-spending-{:016x}", fastrand::u64(..))))
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

fn own(max_cost: f64) -> Spending {
    Spending::new(Cap { max_cost, whose: "of 'f'".to_owned(), shared: None })
}

fn shared(max_cost: f64, path: &Path, kept: bool) -> Spending {
    let shared = Some(SharedCap { path: path.join("cap"), kept });
    Spending::new(Cap { max_cost, whose: "of 'f'".to_owned(), shared })
}

fn at_most(most: f64) -> Reserve {
    Reserve { most, bounded: true }
}

fn admitted(spending: &Spending) -> bool {
    spending.admit(1, &at_most(0.0)) == Admission::Yes
}

fn refused(spending: &Spending) -> String {
    match spending.admit(1, &at_most(0.0)) {
        Admission::Refused(reason) => reason,
        other => panic!("{other:?}"),
    }
}

#[test]
fn calls_of_one_price_stop_at_the_cap() {
    let spending = own(1.0);
    let mut calls = 0;
    while admitted(&spending) {
        spending.complete(1, Cost::Known(0.25));
        calls += 1;
        assert!(calls <= 4);
    }
    assert_eq!(calls, 4);
    let reason = refused(&spending);
    assert_eq!(reason, "max_cost=1 of 'f' is reached: 1.000000 spent on 4 requests, about 0.250000 each");
    assert_eq!(spending.exhausted(1), Some(reason));
}

#[test]
fn requests_in_flight_are_reserved_and_leave_room() {
    let spending = own(1.0);
    assert!(admitted(&spending));
    spending.complete(1, Cost::Known(0.25));
    assert!((0..3).all(|_| admitted(&spending)));
    assert!(refused(&spending).contains("0.250000 spent on 1 requests, 3 more in flight, about 0.250000 each"));
    assert_eq!(spending.exhausted(1), None, "it is not spent yet");
    (0..2).for_each(|_| spending.complete(1, Cost::Free));
    assert!(admitted(&spending), "two of them cost nothing");
    (0..2).for_each(|_| spending.complete(1, Cost::Known(0.25)));
}

#[test]
fn the_most_that_a_request_can_cost_counts_before_any_cost_is_known() {
    let spending = own(1.0);
    assert_eq!(spending.admit(1, &at_most(0.6)), Admission::Yes);
    assert_eq!(spending.admit(1, &at_most(0.6)), Admission::Busy, "the first may cost less");
    assert_eq!(spending.admit(1, &at_most(0.2)), Admission::Yes);
    assert!(matches!(own(1.0).admit(1, &at_most(1.1)), Admission::Refused(_)));
}

#[test]
fn a_request_whose_cost_nobody_knows_counts_as_others_do() {
    let spending = own(1.0);
    (0..2).for_each(|_| assert_eq!(spending.admit(1, &at_most(0.1)), Admission::Yes));
    spending.complete(1, Cost::Unknown { most: 0.1 });
    spending.complete(1, Cost::Known(0.4));
    assert!(admitted(&spending));
    spending.complete(1, Cost::Unknown { most: 0.1 });
    let reason = refused(&spending);
    assert!(reason.contains("0.400000 spent on 1 requests and about 0.500000 on 2 of unknown cost"), "{reason}");
}

#[test]
fn a_shared_cap_ends_with_the_last_engine_that_shares_it_unless_it_is_kept() {
    for kept in [false, true] {
        let folder = Folder::new();
        let (one, two) = (shared(1.0, &folder.0, kept), shared(1.0, &folder.0, kept));
        assert!(admitted(&one));
        one.complete(1, Cost::Known(0.75));
        assert!(!admitted(&two), "the other's request counts");
        drop(one);
        assert!(!admitted(&two), "and goes on counting");
        drop(two);
        assert_eq!(admitted(&shared(1.0, &folder.0, kept)), !kept);
    }
}

#[test]
fn room_that_another_engine_leaves_is_seen_without_a_request_of_ones_own() {
    let folder = Folder::new();
    let (one, two) = (shared(1.0, &folder.0, false), shared(1.0, &folder.0, false));
    assert!(admitted(&one) && admitted(&two));
    one.complete(1, Cost::Known(0.55));
    assert!(one.exhausted(1).is_some(), "another as dear would not fit");
    two.complete(1, Cost::Known(0.05));
    assert_eq!(one.exhausted(1), None, "at a mean of 0.3 another fits");
    assert!(admitted(&one));
}

#[test]
fn a_file_that_can_not_be_used_refuses() {
    let folder = Folder::new();
    std::fs::create_dir_all(folder.0.join("cap")).unwrap();
    let reason = refused(&shared(1.0, &folder.0, false));
    assert!(reason.contains("what was spent under max_cost=1 is not known") && reason.contains("cap"), "{reason}");
}

#[test]
fn a_damaged_file_starts_anew() {
    let folder = Folder::new();
    let first = shared(1.0, &folder.0, true);
    assert!(admitted(&first));
    first.complete(1, Cost::Known(1.0));
    drop(first);
    let path = &folder.0.join("cap");
    let mut bytes = std::fs::read(path).unwrap();
    bytes[30] ^= 1;
    std::fs::write(path, bytes).unwrap();
    assert!(admitted(&shared(1.0, &folder.0, true)));
}

/// What engines do: ask, or end the oldest request of theirs.
#[derive(Clone, Debug)]
enum Step {
    Ask(usize),
    /// The end has the cost, 0 for a free request, or none if nobody knows it.
    End(usize, Option<u32>),
    Restart(usize),
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let engine = 0..3_usize;
    let step = prop_oneof![
        4 => engine.clone().prop_map(Step::Ask),
        3 => (engine.clone(), proptest::option::weighted(0.8, 0..200_u32)).prop_map(|(one, cost)| Step::End(one, cost)),
        1 => engine.prop_map(Step::Restart),
    ];
    proptest::collection::vec(step, 1..120)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, ..ProptestConfig::default() })]

    /// Three engines with one file against a model: each request is decided alike, nothing is lost
    /// or counted twice, and the cap is passed by no more than the bound says.
    #[test]
    fn engines_that_share_a_cap_count_together(steps in steps(), max_cost in 1..2000_u32) {
        let folder = Folder::new();
        let max_cost = f64::from(max_cost);
        let make = || shared(max_cost, &folder.0, true);
        let mut engines: Vec<Spending> = (0..3).map(|_| make()).collect();
        let mut in_flight = [0_u64; 3];
        let (mut spent, mut known, mut guessed) = (0.0, 0_u64, 0.0);
        // What requests in flight may cost beyond the mean, at the last one that was let go.
        let mut bound = max_cost;
        for step in steps {
            match step {
                Step::Ask(one) => {
                    let all = in_flight.iter().sum::<u64>();
                    let mean = if known == 0 { 0.0 } else { spent / known as f64 };
                    let counted = spent + guessed;
                    let expected = counted < max_cost && counted + mean * (all as f64 + 1.0) <= max_cost;
                    prop_assert_eq!(admitted(&engines[one]), expected);
                    if expected {
                        in_flight[one] += 1;
                        bound = max_cost + (all as f64 + 1.0) * (200.0 - mean).max(0.0);
                    }
                }
                Step::End(one, cost) => {
                    if in_flight[one] > 0 {
                        in_flight[one] -= 1;
                        let cost = match cost.map(f64::from) {
                            None => Cost::Unknown { most: 0.0 },
                            Some(cost) if cost > 0.0 => Cost::Known(cost),
                            Some(_) => Cost::Free,
                        };
                        engines[one].complete(1, cost);
                        match cost {
                            Cost::Known(cost) => (spent, known) = (spent + cost, known + 1),
                            Cost::Unknown { .. } if known > 0 => guessed += spent / known as f64,
                            Cost::Unknown { .. } | Cost::Free => {}
                        }
                    }
                }
                Step::Restart(one) => {
                    // Its requests in flight end with it.
                    engines[one] = make();
                    in_flight[one] = 0;
                }
            }
            prop_assert!(spent <= bound + 1e-9, "{} spent of {}", spent, bound);
        }
        let reason = format!("{spent:.6} spent on {known} requests");
        if let Admission::Refused(found) = make().admit(1, &at_most(0.0)) {
            prop_assert!(found.contains(&reason), "{} in {}", reason, found);
        }
    }
}

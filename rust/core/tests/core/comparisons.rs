//! Comparisons of a group's samples by a member on a fake lane and a paused clock.

use std::time::Duration;

use guerdon_core::batch::{Batch, BatchSpec};
use guerdon_core::compose::{Composite, Pairwise, PairwiseScore, Schedule};
use guerdon_core::delivery::Delivery;
use guerdon_core::function::{Function, FunctionId, Policy, Shape};
use guerdon_core::limits::{Limit, Rules};
use guerdon_core::outcome::{Cell, FailureKind, Status};
use guerdon_core::report::Extra;
use guerdon_testkit::{Act, Ask, Rig, Room, Script, done, failure, function, paused, seeds, spec};

use crate::composites::{hostile, hostile_day, policy};

const PAIRWISE: FunctionId = 0;
const JUDGE: FunctionId = 1;

fn rules(schedule: Schedule, both_orders: bool) -> Pairwise {
    Pairwise { function: JUDGE, schedule, score: PairwiseScore::BradleyTerry, both_orders }
}

fn rig(rules: Pairwise, judge: Policy, room: Room, script: impl Script) -> Rig {
    rig_of(policy(), rules, judge, room, script)
}

fn rig_of(owner: Policy, rules: Pairwise, policy: Policy, room: Room, script: impl Script) -> Rig {
    let composite = Composite::Pairwise(rules);
    let judge =
        Function { member_of: Some(PAIRWISE), second_columns: [1].into(), ..function("pairwise", Shape::Sample) };
    let functions = vec![
        Function { lane: 1, member_calls: composite.calls(), policy: owner, ..function("pairwise", Shape::Group) },
        Function { policy, ..judge },
    ];
    Rig::composed(functions, vec![Some(composite), None], room, script)
}

/// The samples of a call in the first batch, in groups of `size`.
fn pair(ask: &Ask, size: usize) -> (usize, usize) {
    let slot = usize::try_from((ask.batch - 1) % 65_536).unwrap() - 1;
    let place = ask.first % size;
    (ask.first, ask.first - place + (place + slot + 1) % size)
}

fn answer(milliseconds: u64, preference: f64) -> Act {
    Act::Return { after: Duration::from_millis(milliseconds), cells: vec![Cell::Value(preference)] }
}

/// Prefers the later sample.
fn prefers_later(ask: &Ask, size: usize) -> Act {
    let (one, other) = pair(ask, size);
    answer(100, if one > other { 1.0 } else { 0.0 })
}

fn values(batch: &Batch) -> Vec<f64> {
    (0..batch.samples()).map(|sample| batch.cell(sample, PAIRWISE).unwrap().outcome.value).collect()
}

fn statuses(batch: &Batch) -> Vec<Status> {
    (0..batch.samples()).map(|sample| batch.cell(sample, PAIRWISE).unwrap().outcome.status).collect()
}

fn counts(batch: &Batch, wanted: &str) -> Vec<f64> {
    let of = |(_, (name, value)): (usize, (std::borrow::Cow<'static, str>, Extra))| match value {
        Extra::Number(count) if name == wanted => Some(count),
        _ => None,
    };
    batch.extra_of(PAIRWISE).into_iter().filter_map(of).collect()
}

#[test]
fn a_group_is_ordered_by_its_pairs() {
    for (schedule, calls) in [(Schedule::Circular, 4), (Schedule::AllPairs, 6), (Schedule::Swiss(None), 6)] {
        for both_orders in [false, true] {
            paused(async move {
                let rig =
                    rig(rules(schedule, both_orders), policy(), Room::default(), |ask: &Ask| prefers_later(ask, 4));
                let batch = rig.engine.submit(spec(3, 4)).unwrap();
                assert!(done(&batch).await);
                for group in values(&batch).chunks(4) {
                    assert!(group.iter().all(|score| (0.0..=1.0).contains(score)));
                    assert!(group[0] < group[3], "{group:?}");
                    assert!(schedule == Schedule::Circular || group.is_sorted(), "{group:?}");
                }
                let made = if both_orders { 2 * calls } else { calls };
                assert_eq!(rig.log().calls().len(), 3 * made, "{schedule:?}");
                assert_eq!(counts(&batch, "flips"), vec![0.0; 12]);
                assert_eq!(counts(&batch, "comparisons").iter().sum::<f64>(), 3.0 * 2.0 * calls as f64);
                assert_eq!(rig.engine.submit(spec(1, 2)).unwrap().number(), 2);
            });
        }
    }
}

#[test]
fn a_group_of_one_abstains_and_one_that_is_too_large_fails() {
    paused(async {
        let rig = rig(rules(Schedule::Circular, true), policy(), Room::default(), |ask: &Ask| prefers_later(ask, 4));
        let batch = rig.engine.submit(spec(2, 1)).unwrap();
        assert!(done(&batch).await);
        assert_eq!(statuses(&batch), vec![Status::Abstained; 2]);
        let batch = rig.engine.submit(spec(1, 65_537)).unwrap();
        assert!(done(&batch).await);
        assert_eq!(batch.cell(0, PAIRWISE).unwrap().outcome.status, Status::Error);
        assert!(rig.log().calls().is_empty());
    });
}

#[test]
fn a_pair_with_an_order_that_fails_does_not_wait_for_the_other() {
    paused(async {
        let room = Room { places: 64, at_once: true, ..Room::default() };
        let script = |ask: &Ask| match pair(ask, 3) {
            (0, 1) => Act::Fail { after: Duration::ZERO, failure: failure(FailureKind::Error) },
            (1, 0) => Act::Hang,
            _ => prefers_later(ask, 3),
        };
        let rig = rig(rules(Schedule::AllPairs, true), policy(), room, script);
        let batch = rig.engine.submit(spec(1, 3)).unwrap();
        assert!(done(&batch).await);
        assert!(batch.elapsed_ns() < 1_000_000_000);
        assert_eq!(counts(&batch, "comparisons"), [1.0, 1.0, 2.0]);
        assert_eq!(statuses(&batch), [Status::Ok; 3], "half of their comparisons are enough");
        tokio::time::sleep(Duration::from_secs(1)).await;
        assert_eq!((rig.lane.held(), rig.engine.calls_in_flight()), (0, vec![0, 0]));
    });
}

/// A group whose time is up has the scores of the pairs that were compared until then.
#[test]
fn groups_are_scored_before_their_time_is_up() {
    for end in ["batch", "group", "total", "cancelled"] {
        paused(async move {
            let room = Room { places: 64, at_once: true, ..Room::default() };
            let script = |ask: &Ask| {
                let (one, other) = pair(ask, 4);
                if one % 4 == 1 || other % 4 == 1 { Act::Hang } else { prefers_later(ask, 4) }
            };
            let bound = Policy { timeout: Duration::from_secs(3000), ..policy() };
            let total_timeout = (end == "total").then_some(Duration::from_secs(5));
            let owner = Policy { total_timeout, ..policy() };
            let made = rig_of(owner, rules(Schedule::AllPairs, true), bound, room, script);
            let delivery =
                Delivery { group_timeout_ns: (end == "group").then_some(5_000_000_000), ..Delivery::default() };
            let batch_timeout_ns = (end == "batch").then_some(5_000_000_000);
            let batch = made.engine.submit(BatchSpec { batch_timeout_ns, delivery, ..spec(2, 4) }).unwrap();
            if end == "cancelled" {
                tokio::time::sleep(Duration::from_secs(1)).await;
                assert!(made.lane.held() > 0);
                made.engine.cancel(&batch, "by the test");
            }
            assert!(done(&batch).await);
            if end == "cancelled" {
                assert_eq!(statuses(&batch), [Status::Cancelled; 8]);
            } else {
                assert!((4_700_000_000..4_800_000_000).contains(&batch.elapsed_ns()), "{end}: {}", batch.elapsed_ns());
                let expected = [Status::Ok, Status::Error, Status::Ok, Status::Ok];
                assert_eq!(statuses(&batch), [expected, expected].concat(), "{end}");
                let reason = batch.note_of(1, PAIRWISE).unwrap().reason;
                assert_eq!(reason, "0 of 3 comparisons, too few for a score; the time was up");
            }
            tokio::time::sleep(Duration::from_secs(1)).await;
            assert_eq!((made.lane.held(), made.engine.calls_in_flight()), (0, vec![0, 0]), "{end}");
        });
    }
}

/// Groups are compared one after the other: with little time some have all their scores.
#[test]
fn comparisons_go_through_the_groups_in_order() {
    paused(async {
        let room = Room { places: 1, frame_calls: 1, ..Room::default() };
        let rig = rig(rules(Schedule::Circular, true), policy(), room, |ask: &Ask| prefers_later(ask, 4));
        let batch = rig.engine.submit(spec(10, 4)).unwrap();
        assert!(done(&batch).await);
        let mut calls = rig.log().calls();
        calls.sort_by_key(|call| call.started_ns);
        let groups: Vec<usize> = calls.iter().map(|call| call.first / 4).collect();
        assert!(groups.is_sorted(), "{groups:?}");
    });
}

/// compose-1: whatever lanes do with comparisons, every cell gets its outcome and no call is left.
#[test]
fn no_comparison_is_lost() {
    for seed in seeds(40, 2000) {
        paused(async move {
            let script = hostile(seed, |_, random| match random.u32(0..10) {
                0 => vec![Cell::Abstained],
                _ => vec![Cell::Value(f64::from(random.u32(0..3)) / 2.0)],
            });
            let mut random = fastrand::Rng::with_seed(seed);
            let room = Room { places: random.usize(1..5), at_once: random.bool(), ..Room::default() };
            let limit = random.bool().then(|| Limit {
                rules: Rules { concurrency: Some(random.usize(1..4)), ..Rules::default() },
                ..Limit::default()
            });
            let retries = random.u16(0..3);
            let bounds = Policy { retries, limit, timeout: Duration::from_secs(2), ..policy() };
            let schedules = [Schedule::Circular, Schedule::AllPairs, Schedule::Swiss(None)];
            let rig = rig(rules(schedules[random.usize(0..3)], random.bool()), bounds, room, script);
            let spec = |random: &mut fastrand::Rng| {
                let batch_timeout_ns = random.bool().then(|| random.u64(1..8_000_000_000));
                BatchSpec { batch_timeout_ns, ..spec(2, random.usize(1..6)) }
            };
            hostile_day(&rig, seed, &mut random, spec).await;
        });
    }
}

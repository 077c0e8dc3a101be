//! Votes, panels and cascades over members on a fake lane and a paused clock.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use guerdon_core::batch::BatchSpec;
use guerdon_core::clock::Clock;
use guerdon_core::compose::{ComposeLane, Composite, Member, Members, Opinions, Reduce, Reduction};
use guerdon_core::function::{Comparison, Condition, Function, FunctionId, Policy, Shape};
use guerdon_core::lane::Lane;
use guerdon_core::open_batch::Placement;
use guerdon_core::outcome::{Cell, FailureKind, Status};
use guerdon_core::report::Extra;
use guerdon_core::scheduler::Scheduler;
use guerdon_testkit::{Act, Ask, FakeLane, Rig, Room, Script, done, failure, function, returns, seeds, spec};

const VOTES: FunctionId = 0;
const PANEL: FunctionId = 1;
const VOTER: FunctionId = 2;
const MEMBERS: [FunctionId; 2] = [3, 4];

/// Three votes at most of one function, and a panel of two, of which `needed` must give a score.
fn rig(needed: usize, policy: Policy, room: Room, script: impl Script) -> Rig {
    let rules = |reduce, needed| Reduction { reduce, needed, weights: Vec::new(), min_agreement: None };
    let votes = Members::Votes { function: VOTER, votes: 3 };
    let panel = Members::Panel(two(MEMBERS));
    let composites = [(votes, rules(Reduce::Median, 2)), (panel, rules(Reduce::Mean, needed))];
    let composites: Vec<_> =
        composites.map(|(members, rules)| Some(Composite::Opinions(Opinions { members, rules }))).into();
    let plain = |name: &str| Function { policy: policy.clone(), ..function(name, Shape::Sample) };
    let composite = |name: &str, composite: &Option<Composite>| Function {
        lane: 1,
        member_calls: composite.as_ref().map_or(0, Composite::calls),
        ..function(name, Shape::Sample)
    };
    let member = |name: &str, of: FunctionId| Function { member_of: Some(of), ..plain(name) };
    let functions = vec![
        composite("votes", &composites[0]),
        composite("panel", &composites[1]),
        member("votes", VOTES),
        member("panel/a", PANEL),
        member("panel/b", PANEL),
    ];
    let (lane, clock) = (Arc::new(FakeLane::new(room, script)), Clock::start());
    let compose = Arc::new(ComposeLane::new(clock, composites));
    let lanes: Vec<Arc<dyn Lane>> = vec![lane.clone(), compose];
    let engine = Scheduler::start(&tokio::runtime::Handle::current(), clock, functions, lanes);
    Rig { engine, lane }
}

fn policy() -> Policy {
    function("any", Shape::Sample).policy
}

fn value(seconds: f64, value: f64) -> Act {
    returns(Duration::from_secs_f64(seconds), 1, value)
}

fn fails() -> Act {
    Act::Fail { after: Duration::ZERO, failure: failure(FailureKind::Error) }
}

#[tokio::test(start_paused = true)]
async fn a_composite_makes_one_score_of_its_members() {
    let rig = rig(1, Policy { retries: 1, ..policy() }, Room::default(), |ask: &Ask| match ask.function {
        VOTER => value(0.1, ask.first as f64),
        3 => value(0.1, 2.0),
        _ if ask.first == 1 => fails(),
        _ if ask.first == 2 && ask.attempt == 1 => fails(),
        _ => value(0.1, 4.0),
    });
    let batch = rig.run(spec(4, 1)).await;
    assert_eq!((batch.functions().len(), batch.number(), rig.open_batches()), (2, 1, 0));
    let values = |function| (0..4).map(|sample| batch.cell(sample, function).unwrap().outcome.value).collect();
    let (votes, panel): (Vec<f64>, Vec<f64>) = (values(VOTES), values(PANEL));
    assert_eq!((votes, panel), (vec![0.0, 1.0, 2.0, 3.0], vec![3.0, 2.0, 3.0, 3.0]));
    let asked = rig.log().calls().iter().filter(|call| call.function == VOTER).count();
    assert_eq!(asked, 8, "two votes that agree decide");
    assert_eq!((batch.retries_of(PANEL), batch.retries_of(VOTES)), (2, 0));
    let of_b = |(sample, (name, value))| (name == "b").then_some((sample, value));
    let shown: Vec<(usize, Extra)> = batch.extra_of(PANEL).into_iter().filter_map(of_b).collect();
    let expected = [Extra::Number(4.0), Extra::None, Extra::Number(4.0), Extra::Number(4.0)];
    assert_eq!(shown, expected.into_iter().enumerate().collect::<Vec<_>>());
    assert_eq!(rig.submit(spec(1, 1)).number(), 2);
}

#[tokio::test(start_paused = true)]
async fn a_failed_member_is_named() {
    let script = |ask: &Ask| if ask.function == 4 || ask.function == VOTER { fails() } else { value(0.0, 1.0) };
    let rig = rig(2, Policy { retries: 2, ..policy() }, Room::default(), script);
    let batch = rig.run(spec(1, 1)).await;
    let reason = |function| batch.note_of(0, function).unwrap().reason;
    assert_eq!(reason(PANEL), "of 2 members 2 must give a score; b: Error by script (after 3 attempts)");
    assert_eq!(
        reason(VOTES),
        "2 of 3 votes failed, and 2 scores are needed; the last: Error by script (after 3 attempts)"
    );
}

/// compose-2: whatever ends the owner's cell, lanes drop the calls of its members.
#[tokio::test(start_paused = true)]
async fn member_calls_end_with_their_owner() {
    for end in ["batch timeout", "total timeout", "cancelled", "decided"] {
        let hangs = move |ask: &Ask| if end == "decided" && ask.function == 3 { fails() } else { Act::Hang };
        let room = Room { places: 64, at_once: true, ..Room::default() };
        let mut rig = rig(2, Policy { timeout: Duration::from_secs(3000), ..policy() }, room, hangs);
        if end == "total timeout" {
            drop(rig);
            rig = with_total_timeout(room);
        }
        let batch_timeout_ns = (end == "batch timeout").then_some(5_000_000_000);
        let batch = rig.submit(BatchSpec { batch_timeout_ns, ..spec(6, 2) });
        tokio::time::sleep(Duration::from_secs(1)).await;
        assert!(rig.lane.held() > 0);
        match end {
            "cancelled" => rig.cancel(&batch, "by the test"),
            "decided" => {
                assert_eq!(batch.cell(0, PANEL).unwrap().outcome.status, Status::Error);
                let open = rig.calls_in_flight();
                assert_eq!((open[3], open[4]), (0, 0), "the panel does not wait for the other member");
                rig.cancel(&batch, "by the test");
            }
            _ => {}
        }
        assert!(done(&batch).await);
        tokio::time::sleep(Duration::from_secs(1)).await;
        assert_eq!((rig.lane.held(), rig.calls_in_flight()), (0, vec![0; 5]), "{end}");
        tokio::time::timeout(Duration::from_secs(60), rig.close()).await.unwrap();
    }
}

fn with_total_timeout(room: Room) -> Rig {
    let panel = Members::Panel(two([1, 2]));
    let rules = Reduction { reduce: Reduce::Mean, needed: 2, weights: Vec::new(), min_agreement: None };
    let composite = Composite::Opinions(Opinions { members: panel, rules });
    let long = Policy { timeout: Duration::from_secs(3000), ..policy() };
    let plain = |name: &str| Function { policy: long.clone(), ..function(name, Shape::Sample) };
    let bounded = Policy { total_timeout: Some(Duration::from_secs(5)), ..long.clone() };
    let mut functions = vec![Function { lane: 1, member_calls: 2, policy: bounded, ..plain("panel") }];
    // The last two are called by no other.
    functions.extend(["a", "b", "c", "d"].map(|name| Function { member_of: Some(0), ..plain(name) }));
    let (lane, clock) = (Arc::new(FakeLane::new(room, |_: &Ask| Act::Hang)), Clock::start());
    let lanes: Vec<Arc<dyn Lane>> = vec![lane.clone(), Arc::new(ComposeLane::new(clock, vec![Some(composite)]))];
    let engine = Scheduler::start(&tokio::runtime::Handle::current(), clock, functions, lanes);
    Rig { engine, lane }
}

#[tokio::test(start_paused = true)]
async fn member_calls_go_through_the_samples_together() {
    let room = Room { places: 1, frame_calls: 1, ..Room::default() };
    let rig = rig(2, policy(), room, |_: &Ask| value(0.01, 1.0));
    rig.run(spec(50, 1)).await;
    let mut calls = rig.log().calls();
    calls.sort_by_key(|call| call.started_ns);
    let firsts: Vec<usize> = calls.iter().map(|call| call.first).collect();
    assert!(firsts.is_sorted(), "{firsts:?}");
}

#[tokio::test(start_paused = true)]
async fn members_are_called_as_samples_come() {
    let rig = rig(2, policy(), Room::default(), |ask: &Ask| value(0.1, ask.first as f64));
    let batch = rig.submit(BatchSpec { streamed: true, ..spec(0, 2) });
    for _ in 0..3 {
        rig.add(&batch, Placement::InOrder(2));
        tokio::time::sleep(Duration::from_secs(1)).await;
        assert!(batch.take_group().is_some(), "its calls are not made later");
    }
    rig.finish(&batch).unwrap();
    assert!(done(&batch).await);
    assert!((0..6).all(|sample| batch.cell(sample, PANEL).unwrap().outcome.value == sample as f64));
}

#[tokio::test(start_paused = true)]
async fn a_member_whose_setup_fails_fails_at_once() {
    let script = |ask: &Ask| if matches!(ask.function, 4 | VOTER) { Act::FailSetup } else { value(0.1, 1.0) };
    let rig = rig(1, policy(), Room { places: 1, frame_calls: 2, ..Room::default() }, script);
    let batch = rig.run(spec(40, 1)).await;
    assert!((0..40).all(|sample| batch.cell(sample, PANEL).unwrap().outcome.value == 1.0));
    let frames = |function| rig.log().frames().iter().filter(|frame| frame.function == function).count();
    assert_eq!((frames(4), frames(VOTER)), (1, 1), "nor in another slot");
    let failed = |sample| batch.note_of(sample, VOTES).is_some_and(|note| note.reason.contains("setup by script"));
    assert!((0..40).all(failed));
}

/// Lanes that do anything with the calls of members.
pub(crate) fn hostile(seed: u64) -> impl Script {
    move |ask: &Ask| {
        let mut random = fastrand::Rng::with_seed(
            seed ^ (ask.function as u64) << 50
                ^ (ask.first as u64) << 30
                ^ ask.batch << 20
                ^ u64::from(ask.attempt) << 8
                ^ u64::from(ask.handed),
        );
        let after = Duration::from_millis(random.u64(0..300));
        match random.u32(0..20) {
            0 => Act::Hang,
            1 if ask.handed < 3 => Act::Lose { after },
            2 => Act::Crash { after },
            3 if ask.handed < 3 => Act::GiveBack,
            4 => Act::Return { after, cells: vec![Cell::Abstained] },
            5..=8 => Act::Fail { after, failure: failure(FailureKind::Error) },
            9 => Act::Late { after, cells: vec![Cell::Value(7.0)] },
            _ => Act::Return { after, cells: vec![Cell::Value(f64::from(random.u32(0..3)))] },
        }
    }
}

/// compose-1: whatever lanes do with member calls, every cell gets its outcome.
#[tokio::test(start_paused = true)]
async fn no_member_call_is_lost() {
    for seed in seeds(40, 2000) {
        let mut random = fastrand::Rng::with_seed(seed);
        let room = Room { places: random.usize(1..5), at_once: random.bool(), ..Room::default() };
        let bounds = Policy { retries: random.u16(0..3), timeout: Duration::from_secs(2), ..policy() };
        let rig = rig(random.usize(1..3), bounds, room, hostile(seed));
        let mut batches = Vec::new();
        for _ in 0..3 {
            let batch_timeout_ns = random.bool().then(|| random.u64(1..4_000_000_000));
            batches.push(rig.submit(BatchSpec { batch_timeout_ns, ..spec(6, 2) }));
            tokio::time::sleep(Duration::from_millis(random.u64(0..500))).await;
        }
        for batch in &batches {
            assert!(done(batch).await, "seed {seed}: a call was lost");
        }
        tokio::time::sleep(Duration::from_secs(10)).await;
        assert_eq!((rig.lane.held(), rig.open_batches()), (0, 0), "seed {seed}");
        assert_eq!(rig.calls_in_flight(), vec![0; 5], "seed {seed}");
    }
}

/// A function of opinions alone, before the members that it names, on a fake lane.
fn rig_of(opinions: Opinions, policy: &Policy, room: Room, script: impl Script) -> Rig {
    let composite = Composite::Opinions(opinions);
    let plain = |name: &str| Function { policy: policy.clone(), ..function(name, Shape::Sample) };
    let mut functions =
        vec![Function { lane: 1, member_calls: composite.calls(), ..function("composite", Shape::Sample) }];
    for member in 1..=composite.calls() {
        let reduces = matches!(&composite, Composite::Opinions(Opinions { rules, .. }) if rules.reduce == Reduce::Function(member));
        functions.push(Function { member_of: Some(0), reduces, ..plain(&format!("composite/{member}")) });
    }
    let (lane, clock) = (Arc::new(FakeLane::new(room, script)), Clock::start());
    let lanes: Vec<Arc<dyn Lane>> = vec![lane.clone(), Arc::new(ComposeLane::new(clock, vec![Some(composite)]))];
    let engine = Scheduler::start(&tokio::runtime::Handle::current(), clock, functions, lanes);
    Rig { engine, lane }
}

fn two([one, other]: [FunctionId; 2]) -> Vec<(String, Member)> {
    vec![("a".to_owned(), Member::Function(one)), ("b".to_owned(), Member::Function(other))]
}

/// A panel of two, of which `needed` must give a score, that a third function reduces.
fn reduced(needed: usize) -> Opinions {
    let rules = Reduction { reduce: Reduce::Function(3), needed, weights: Vec::new(), min_agreement: None };
    Opinions { members: Members::Panel(two([1, 2])), rules }
}

/// Two members, of which the first counts below 2 and from 8 on.
fn cascade() -> Opinions {
    let of_first = |comparison, bound| Condition { source: 0, comparison, bound };
    let accept = vec![of_first(Comparison::Less, 2.0), of_first(Comparison::AtLeast, 8.0)];
    let rules = Reduction { reduce: Reduce::Median, needed: 1, weights: Vec::new(), min_agreement: None };
    Opinions { members: Members::Cascade { members: two([1, 2]), accept, is_fallback: false }, rules }
}

#[tokio::test(start_paused = true)]
async fn a_reduce_is_called_once_its_members_have_ended() {
    let script = |ask: &Ask| match (ask.function, ask.first) {
        (1, 1 | 2) => fails(),
        (2, 2) => fails(),
        (3, 3) => fails(),
        (1, _) => value(0.1, 1.0),
        (2, _) => value(0.5, 2.0),
        _ => value(0.2, 7.0),
    };
    let rig = rig_of(reduced(1), &policy(), Room { places: 8, ..Room::default() }, script);
    let batch = rig.run(spec(4, 1)).await;
    let outcomes: Vec<(Status, f64)> =
        (0..4).map(|sample| batch.cell(sample, 0).unwrap().outcome).map(|one| (one.status, one.value)).collect();
    assert_eq!(outcomes[..2], [(Status::Ok, 7.0); 2]);
    assert_eq!((outcomes[2].0, outcomes[3].0), (Status::Error, Status::Error));
    assert_eq!(batch.note_of(3, 0).unwrap().reason, "reduce: Error by script");
    assert!(batch.note_of(2, 0).unwrap().reason.starts_with("of 2 members 1 must give a score; a: "));
    let calls = rig.log().calls();
    let of = |function| calls.iter().filter(move |call| call.function == function);
    assert_eq!(of(3).map(|call| call.first).collect::<BTreeSet<_>>(), BTreeSet::from([0, 1, 3]));
    let ended = |first| of(2).filter(|call| call.first == first).map(|call| call.started_ns + 500_000_000).max();
    assert!(of(3).all(|call| Some(call.started_ns) >= ended(call.first)));
}

#[tokio::test(start_paused = true)]
async fn a_cascade_calls_the_next_member_where_a_score_does_not_count() {
    let script = |ask: &Ask| match (ask.function, ask.first) {
        (1, 4) => fails(),
        (1, 5) => Act::Return { after: Duration::ZERO, cells: vec![Cell::Abstained] },
        (1, sample) => value(0.1, [1.0, 2.0, 7.9, 8.0][sample]),
        (2, 2) => fails(),
        _ => value(0.1, 50.0),
    };
    let rig = rig_of(cascade(), &policy(), Room::default(), script);
    let batch = rig.run(spec(6, 1)).await;
    let scores: Vec<f64> = (0..6).map(|sample| batch.cell(sample, 0).unwrap().outcome.value).collect();
    assert_eq!((scores[0], scores[1], scores[3], scores[4], scores[5]), (1.0, 50.0, 8.0, 50.0, 50.0));
    assert_eq!(batch.note_of(2, 0).unwrap().reason, "a: 7.9 is not accepted; b: Error by script");
    let asked = rig.log().calls().iter().filter(|call| call.function == 2).count();
    assert_eq!(asked, 4);
    let by: Vec<(usize, Extra)> = batch
        .extra_of(0)
        .into_iter()
        .filter_map(|(sample, (name, by))| (name == "by").then_some((sample, by)))
        .collect();
    let expected = [(0, "a"), (1, "b"), (3, "a"), (4, "b"), (5, "b")];
    assert_eq!(by, expected.map(|(sample, by)| (sample, Extra::from(by))).to_vec());
}

/// Hostile days: every cell gets its outcome, and nothing is left behind.
#[tokio::test(start_paused = true)]
async fn no_call_of_a_reduce_or_cascade_is_lost() {
    for seed in seeds(40, 2000) {
        let mut random = fastrand::Rng::with_seed(seed);
        let room = Room { places: random.usize(1..5), at_once: random.bool(), ..Room::default() };
        let bounds = Policy { retries: random.u16(0..3), timeout: Duration::from_secs(2), ..policy() };
        let opinions = if random.bool() { reduced(random.usize(1..3)) } else { cascade() };
        let functions = opinions.calls() + 1;
        let rig = rig_of(opinions, &bounds, room, hostile(seed));
        let mut batches = Vec::new();
        for _ in 0..3 {
            let batch_timeout_ns = random.bool().then(|| random.u64(1..4_000_000_000));
            batches.push(rig.submit(BatchSpec { batch_timeout_ns, ..spec(6, 2) }));
            tokio::time::sleep(Duration::from_millis(random.u64(0..500))).await;
        }
        for batch in &batches {
            assert!(done(batch).await, "seed {seed}: a call was lost");
        }
        tokio::time::sleep(Duration::from_secs(10)).await;
        assert_eq!((rig.lane.held(), rig.open_batches()), (0, 0), "seed {seed}");
        assert_eq!(rig.calls_in_flight(), vec![0; functions], "seed {seed}");
    }
}

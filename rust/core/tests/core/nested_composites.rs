//! Composites whose members make several calls themselves: trees at random, compared with a serial
//! evaluation.

use std::sync::Arc;
use std::time::Duration;

use guerdon_core::batch::BatchSpec;
use guerdon_core::clock::Clock;
use guerdon_core::compose::{ComposeLane, Composite, Member, Members, Opinions, Reduce, Reduction};
use guerdon_core::delivery::Delivery;
use guerdon_core::function::{Comparison, Condition, Function, FunctionId, Policy, Shape};
use guerdon_core::lane::Lane;
use guerdon_core::outcome::{Cell, FailureKind, Status};
use guerdon_core::report::Extra;
use guerdon_core::scheduler::Scheduler;
use guerdon_testkit::{Act, Ask, FakeLane, Rig, Room, Script, done, failure, function, returns, seeds, spec};

use crate::composites::hostile;

/// Draws composites, and gives their functions numbers from 1 on.
struct Trees {
    random: fastrand::Rng,
    /// True for functions that are a reduce.
    reduces: Vec<bool>,
}

impl Trees {
    fn function(&mut self, reduces: bool) -> FunctionId {
        self.reduces.push(reduces);
        self.reduces.len()
    }

    fn opinions(&mut self, depth: usize) -> Opinions {
        let kind = self.random.u32(0..5);
        if kind == 0 {
            return votes(self.function(false));
        }
        let count = self.random.usize(2..4);
        let members: Vec<_> = (0..count).map(|place| (format!("m{place}"), self.member(depth))).collect();
        if kind < 3 {
            let places: Vec<usize> = (0..count - 1).filter(|_| self.random.bool()).collect();
            let accept = places.into_iter().map(|source| Condition {
                source,
                comparison: Comparison::AtLeast,
                bound: self.random.u32(0..4) as f32,
            });
            let members = Members::Cascade { members, accept: accept.collect(), is_fallback: self.random.bool() };
            return Opinions { members, rules: rules(Reduce::Median, 1) };
        }
        let reduce = match self.random.u32(0..4) {
            0 => Reduce::Min,
            1 => Reduce::Max,
            2 => Reduce::Mean,
            _ => Reduce::Function(self.function(true)),
        };
        Opinions { members: Members::Panel(members), rules: rules(reduce, self.random.usize(1..=count)) }
    }

    fn member(&mut self, depth: usize) -> Member {
        if depth == 0 || self.random.bool() {
            return Member::Function(self.function(false));
        }
        Member::Opinions(Box::new(self.opinions(depth - 1)))
    }
}

fn rules(reduce: Reduce, needed: usize) -> Reduction {
    Reduction { reduce, needed, weights: Vec::new(), min_agreement: None }
}

fn votes(function: FunctionId) -> Opinions {
    Opinions { members: Members::Votes { function, votes: 3 }, rules: rules(Reduce::Median, 2) }
}

/// A composite before its functions, on a fake lane.
fn rig(opinions: Opinions, reduces: &[bool], policy: &Policy, room: Room, script: impl Script) -> Rig {
    let composite = Composite::Opinions(opinions);
    let mut functions =
        vec![Function { lane: 1, member_calls: composite.calls(), ..function("composite", Shape::Sample) }];
    functions.extend(reduces.iter().enumerate().map(|(number, reduces)| Function {
        member_of: Some(0),
        reduces: *reduces,
        policy: policy.clone(),
        ..function(&format!("composite/{number}"), Shape::Sample)
    }));
    let (lane, clock) = (Arc::new(FakeLane::new(room, script)), Clock::start());
    let lanes: Vec<Arc<dyn Lane>> = vec![lane.clone(), Arc::new(ComposeLane::new(clock, vec![Some(composite)]))];
    let engine = Scheduler::start(&tokio::runtime::Handle::current(), clock, functions, lanes);
    Rig { engine, lane }
}

fn policy() -> Policy {
    function("any", Shape::Sample).policy
}

/// A score, an abstention (`None`) or a failure.
type End = Result<Option<f64>, ()>;

/// The end of a function's call on a sample, the same in each draw.
fn end_of_call(seed: u64, function: FunctionId, sample: usize) -> End {
    let mut random = fastrand::Rng::with_seed(seed ^ (function as u64) << 40 ^ (sample as u64) << 20);
    match random.u32(0..7) {
        0 | 1 => Err(()),
        2 => Ok(None),
        _ => Ok(Some(f64::from(random.u32(0..4)))),
    }
}

/// Evaluates members one after the other.
fn serial(opinions: &Opinions, call: &impl Fn(FunctionId) -> End) -> End {
    let of = |member: &Member| match member {
        Member::Function(function) => call(*function),
        Member::Opinions(opinions) => serial(opinions, call),
    };
    match &opinions.members {
        Members::Votes { function, .. } => call(*function),
        Members::Cascade { members, accept, .. } => {
            let stands = |place: usize, end: &End| {
                let conditions: Vec<_> = accept.iter().filter(|condition| condition.source == place).collect();
                let score = end.ok().flatten();
                end.is_ok()
                    && (conditions.is_empty()
                        || score.is_some_and(|score| conditions.iter().any(|one| one.holds(score as f32))))
            };
            let ends = members.iter().enumerate().map(|(place, (_, member))| (place, of(member)));
            ends.into_iter().find(|(place, end)| stands(*place, end)).map_or(Err(()), |(_, end)| end)
        }
        Members::Panel(members) => {
            let ends: Vec<End> = members.iter().map(|(_, member)| of(member)).collect();
            let scores: Vec<f64> = ends.iter().filter_map(|end| end.ok().flatten()).collect();
            let (needed, spare) = (opinions.rules.needed, members.len() - opinions.rules.needed);
            if scores.len() < needed {
                let failed = ends.iter().filter(|end| end.is_err()).count();
                let abstained = members.len() - scores.len() - failed;
                return if failed <= spare && abstained > spare { Ok(None) } else { Err(()) };
            }
            match opinions.rules.reduce {
                Reduce::Function(function) => call(function),
                Reduce::Min => Ok(scores.into_iter().reduce(f64::min)),
                Reduce::Max => Ok(scores.into_iter().reduce(f64::max)),
                _ => Ok(Some(scores.iter().sum::<f64>() / scores.len() as f64)),
            }
        }
    }
}

/// compose-4: the order in which calls end has no influence on the scores.
#[tokio::test(start_paused = true)]
async fn scores_of_nested_composites_are_those_of_a_serial_evaluation() {
    for seed in seeds(150, 5000) {
        let mut trees = Trees { random: fastrand::Rng::with_seed(seed), reduces: Vec::new() };
        let opinions = trees.opinions(3);
        let script = move |ask: &Ask| {
            let after = Duration::from_millis(
                fastrand::Rng::with_seed(seed ^ ask.batch << 30 ^ (ask.first as u64)).u64(0..300),
            );
            match end_of_call(seed, ask.function, ask.first) {
                Ok(Some(score)) => Act::Return { after, cells: vec![Cell::Value(score)] },
                Ok(None) => Act::Return { after, cells: vec![Cell::Abstained] },
                Err(()) => Act::Fail { after, failure: failure(FailureKind::Error) },
            }
        };
        let room = Room { places: trees.random.usize(1..30), ..Room::default() };
        let rig = rig(opinions.clone(), &trees.reduces, &policy(), room, script);
        let batch = rig.run(spec(3, 2)).await;
        for sample in 0..6 {
            let outcome = batch.cell(sample, 0).unwrap().outcome;
            let context = format!("seed {seed}, sample {sample}: {:?}", batch.note_of(sample, 0));
            match serial(&opinions, &|function| end_of_call(seed, function, sample)) {
                Ok(Some(score)) => assert!((outcome.value - score).abs() < 1e-9, "{context}"),
                Ok(None) => assert_eq!(outcome.status, Status::Abstained, "{context}"),
                Err(()) => assert_eq!(outcome.status, Status::Error, "{context}"),
            }
        }
        tokio::time::sleep(Duration::from_secs(1)).await; // calls that were given up
        assert_eq!(rig.calls_in_flight(), vec![0; trees.reduces.len() + 1], "seed {seed}");
        assert_eq!((rig.lane.held(), rig.open_batches()), (0, 0), "seed {seed}");
    }
}

/// A cascade of a panel, of votes and another function, and of a last function.
fn cascade_of_a_panel() -> Opinions {
    let panel = Members::Panel(vec![
        ("votes".to_owned(), Member::Opinions(Box::new(votes(1)))),
        ("b".to_owned(), Member::Function(2)),
    ]);
    let panel = Opinions { members: panel, rules: rules(Reduce::Mean, 2) };
    let members =
        vec![("panel".to_owned(), Member::Opinions(Box::new(panel))), ("last".to_owned(), Member::Function(3))];
    let accept = vec![Condition { source: 0, comparison: Comparison::AtLeast, bound: 5.0 }];
    Opinions { members: Members::Cascade { members, accept, is_fallback: false }, rules: rules(Reduce::Median, 1) }
}

/// compose-2: a member that has failed gives up its calls, and the next member is called.
#[tokio::test(start_paused = true)]
async fn calls_of_a_failed_member_are_given_up() {
    let script = |ask: &Ask| match ask.function {
        1 => Act::Hang,
        2 => Act::Fail { after: Duration::from_secs(1), failure: failure(FailureKind::Error) },
        _ => returns(Duration::from_secs(1), 1, 7.0),
    };
    let bounds = Policy { timeout: Duration::from_secs(3000), retries: 1, ..policy() };
    let rig =
        rig(cascade_of_a_panel(), &[false; 3], &bounds, Room { places: 64, at_once: true, ..Room::default() }, script);
    let batch = rig.run(spec(2, 2)).await;
    assert!((0..4).all(|sample| batch.cell(sample, 0).unwrap().outcome.value == 7.0));
    tokio::time::sleep(Duration::from_secs(1)).await;
    assert_eq!((rig.lane.held(), rig.calls_in_flight()), (0, vec![0; 4]));
    assert_eq!(batch.retries_of(0), 4, "of the outermost function");
    let extra: Vec<_> =
        batch.extra_of(0).into_iter().filter(|(sample, _)| *sample == 0).map(|(_, named)| named).collect();
    let reason = "panel: of 2 members 2 must give a score; b: Error by script (after 2 attempts)";
    for (name, value) in [
        ("panel", Extra::None),
        ("panel/votes", Extra::None),
        ("panel/b", Extra::None),
        ("last", Extra::Number(7.0)),
        ("by", "last".into()),
        ("failed", reason.into()),
    ] {
        assert!(extra.contains(&(name.into(), value)), "{name}: {extra:?}");
    }
}

/// compose-1 and compose-2: whatever lanes do and whatever ends the batch or a group, every cell
/// gets its outcome, and nothing is left behind.
#[tokio::test(start_paused = true)]
async fn no_call_of_a_nested_composite_is_lost() {
    for seed in seeds(60, 3000) {
        let mut trees = Trees { random: fastrand::Rng::with_seed(seed), reduces: Vec::new() };
        let opinions = trees.opinions(3);
        let Trees { mut random, reduces } = trees;
        let room = Room { places: random.usize(1..9), at_once: random.bool(), ..Room::default() };
        let bounds = Policy { retries: random.u16(0..3), timeout: Duration::from_secs(2), ..policy() };
        let rig = rig(opinions, &reduces, &bounds, room, hostile(seed));
        let mut batches = Vec::new();
        for _ in 0..3 {
            let batch_timeout_ns = random.bool().then(|| random.u64(1..4_000_000_000));
            let group_timeout_ns = random.bool().then(|| random.u64(1..4_000_000_000));
            let delivery =
                Delivery { group_timeout_ns, group_quorum: random.bool().then_some(1), ..Delivery::default() };
            batches.push(rig.submit(BatchSpec { batch_timeout_ns, delivery, ..spec(3, 2) }));
            tokio::time::sleep(Duration::from_millis(random.u64(0..500))).await;
        }
        if random.bool() {
            rig.cancel(&batches[0], "by the test");
        }
        for batch in &batches {
            assert!(done(batch).await, "seed {seed}: a call was lost");
        }
        tokio::time::sleep(Duration::from_secs(10)).await;
        assert_eq!((rig.lane.held(), rig.open_batches()), (0, 0), "seed {seed}");
        assert_eq!(rig.calls_in_flight(), vec![0; reduces.len() + 1], "seed {seed}");
    }
}

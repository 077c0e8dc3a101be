//! Identical calls of pure functions in flight: made once, shared by all who ask.

use std::any::Any;
use std::sync::Arc;
use std::time::Duration;

use guerdon_core::batch::BatchSpec;
use guerdon_core::delivery::Delivery;
use guerdon_core::function::{Comparison, Condition, Function, FunctionId, Gather, Policy, RunIf, Shape};
use guerdon_core::outcome::{Cell, FailureKind, Status};
use guerdon_core::outcome_cache::{CachePolicy, KeptOutcome, OutcomeCache, OutcomeKey};
use guerdon_core::payload::Payload;
use guerdon_testkit::{Act, Ask, Rig, Room, Script, done, failure, function, paused, returns, statuses};
use proptest::prelude::*;

/// Sample `n` has the value `n % kinds`.
struct Alike(usize);

impl Payload for Alike {
    fn bytes(&self, _: FunctionId, _: u32) -> usize {
        4
    }

    fn identity(&self, _: FunctionId, sample: u32, out: &mut Vec<u8>) -> bool {
        out.extend((sample as usize % self.0).to_le_bytes());
        true
    }

    fn mixes(&self, _: FunctionId) -> bool {
        true
    }

    fn as_any(&self) -> &dyn Any {
        self
    }
}

fn alike(groups: usize, size: usize, kinds: usize) -> BatchSpec {
    BatchSpec::whole(groups * size, size, Box::new(Alike(kinds)))
}

fn pure(name: &str) -> Function {
    Function { pure: true, ..function(name, Shape::Sample) }
}

fn engine(functions: Vec<Function>, room: Room, script: impl Script) -> Arc<Rig> {
    Arc::new(Rig::new(room, functions, script))
}

fn wide() -> Room {
    Room { places: 64, at_once: true, ..Room::default() }
}

fn after(seconds: f64, value: f64) -> Act {
    returns(Duration::from_secs_f64(seconds), 1, value)
}

use Status::{Cancelled, Error, Ok as Scored, Timeout};

#[tokio::test(start_paused = true)]
async fn a_panic_while_identities_are_made_ends_their_calls() {
    let engine = engine(vec![pure("f")], wide(), |_: &Ask| after(1.0, 1.0));
    let batch = engine.submit(alike(1, 4, 0)); // panics: there are no kinds
    assert!(done(&batch).await);
    assert_eq!(statuses(&batch, 0), [Error; 4]);
    assert_eq!(batch.note_of(0, 0).unwrap().reason, "looking for identical calls panicked");
}

#[tokio::test(start_paused = true)]
async fn identical_calls_are_made_once_within_a_batch_and_between_batches() {
    let engine = engine(vec![pure("f")], wide(), |ask: &Ask| after(5.0, ask.first as f64));
    let one = engine.submit(alike(2, 8, 4));
    let other = engine.submit(alike(1, 4, 4));
    assert!(done(&one).await && done(&other).await);
    assert_eq!(engine.log().calls().len(), 4);
    assert_eq!((one.shared_of(0) + other.shared_of(0), one.shown(13, 0).0), (16, one.shown(1, 0).0));
    assert_eq!(
        (0..4).map(|sample| other.shown(sample, 0)).collect::<Vec<_>>(),
        (0..4).map(|sample| one.shown(sample, 0)).collect::<Vec<_>>()
    );
    engine.run(alike(1, 4, 4)).await;
    assert_eq!(engine.log().calls().len(), 8, "what has ended is not remembered");
}

#[tokio::test(start_paused = true)]
async fn a_failure_after_all_retries_is_that_of_all_who_wait() {
    let plain = pure("f");
    let flaky = Function { policy: Policy { retries: 2, ..plain.policy }, ..plain };
    let engine = engine(vec![flaky], wide(), |_: &Ask| Act::Fail {
        after: Duration::from_secs(1),
        failure: failure(FailureKind::Error),
    });
    let batch = engine.run(alike(1, 5, 1)).await;
    assert_eq!((statuses(&batch, 0), engine.log().calls().len()), (vec![Error; 5], 3));
    assert!((0..5).all(|sample| batch.note_of(sample, 0).is_some()));
}

#[tokio::test(start_paused = true)]
async fn waiting_sample_takes_over_a_cancelled_call() {
    let engine = engine(vec![pure("f")], wide(), |_: &Ask| after(5.0, 1.0));
    let first = engine.submit(alike(1, 1, 1));
    tokio::time::sleep(Duration::from_secs(1)).await;
    let second = engine.submit(alike(1, 3, 1));
    tokio::time::sleep(Duration::from_secs(1)).await;
    engine.cancel(&first, "stop");
    assert!(done(&second).await);
    assert_eq!((statuses(&first, 0), statuses(&second, 0)), (vec![Cancelled], vec![Scored; 3]));
    assert_eq!(engine.log().calls().len(), 2);
    assert_eq!(second.elapsed_ns() / 1_000_000_000, 6);
}

#[tokio::test(start_paused = true)]
async fn waiting_samples_keep_their_own_bounds() {
    let engine = engine(vec![pure("f")], wide(), |_: &Ask| after(5.0, 1.0));
    let first = engine.submit(alike(1, 1, 1));
    let short = BatchSpec { batch_timeout_ns: Some(2_000_000_000), ..alike(1, 2, 1) };
    tokio::time::sleep(Duration::from_secs(1)).await;
    let second = engine.submit(short);
    assert!(done(&first).await && done(&second).await);
    assert_eq!((statuses(&first, 0), statuses(&second, 0)), (vec![Scored], vec![Timeout; 2]));
    assert_eq!((second.elapsed_ns() / 1_000_000_000, engine.log().calls().len()), (2, 1));
}

#[tokio::test(start_paused = true)]
async fn a_leader_that_its_batch_timed_out_hands_over() {
    let engine = engine(vec![pure("f")], wide(), |_: &Ask| after(5.0, 1.0));
    let short = BatchSpec { batch_timeout_ns: Some(2_000_000_000), ..alike(1, 2, 1) };
    let first = engine.submit(short);
    tokio::time::sleep(Duration::from_secs(1)).await;
    let second = engine.submit(alike(1, 2, 1));
    assert!(done(&first).await && done(&second).await);
    assert_eq!((statuses(&first, 0), statuses(&second, 0)), (vec![Timeout; 2], vec![Scored; 2]));
    assert_eq!(engine.log().calls().len(), 2);
}

/// Groups, their size, a wait before, a batch timeout, a cancellation, a quorum.
type Draft = (usize, usize, u64, Option<u64>, Option<u64>, Option<usize>);

#[derive(Clone, Debug)]
struct Plan {
    batches: Vec<Draft>,
    kinds: usize,
    room: (usize, usize, bool),
    retries: u16,
    gather: Option<usize>,
    conditional: bool,
    total_ms: Option<u64>,
    faults: u64,
    seed: u64,
}

prop_compose! {
    fn plans()(
        batches in prop::collection::vec((
            1..6_usize, 1..5_usize, 0..400_u64,
            prop::option::weighted(0.2, 1..1500_u64), prop::option::weighted(0.2, 0..800_u64), prop::option::weighted(0.2, 1..3_usize),
        ), 1..4),
        kinds in 1..6_usize,
        room in (1..4_usize, 1..8_usize, any::<bool>()),
        retries in 0..3_u16,
        gather in prop::option::weighted(0.3, 1..5_usize),
        conditional in any::<bool>(),
        total_ms in prop::option::weighted(0.2, 1..1000_u64),
        faults in 0..4_u64,
        seed in any::<u64>(),
    ) -> Plan {
        Plan { batches, kinds, room, retries, gather, conditional, total_ms, faults, seed }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    /// Each cell has the outcome of its value's call, or was ended by a bound of its own.
    #[test]
    fn every_cell_has_the_outcome_of_an_identical_call(plan in plans()) {
        paused(run(plan));
    }
}

async fn run(plan: Plan) {
    let kinds = plan.kinds;
    let (seed, faults) = (plan.seed, plan.faults);
    let script = move |ask: &Ask| {
        let run = Duration::from_millis(seed.wrapping_mul(ask.first as u64 + 1) % 150);
        let kind = ask.first % kinds;
        // A value always fails, or never.
        if ask.function == 0 && (seed >> (kind * 3)) % 8 < faults {
            return Act::Fail { after: run, failure: failure(FailureKind::Error) };
        }
        let value = if ask.function == 0 { kind as f64 } else { 1.0 };
        let samples = if ask.samples == 1 { 1 } else { ask.samples };
        Act::Return { after: run, cells: vec![Cell::Value(value); samples] }
    };
    let plain = pure("f");
    let total_timeout = plan.total_ms.map(Duration::from_millis);
    let mut shared = Function { policy: Policy { retries: plan.retries, total_timeout, ..plain.policy }, ..plain };
    if plan.conditional {
        let condition = Condition { source: 1, comparison: Comparison::Greater, bound: 0.0 };
        shared.run_if = Some(Arc::new(RunIf { conditions: [condition].into(), otherwise: f32::NAN }));
    }
    // Gathered samples get one value each: of equal ones only where all of a call are alike.
    if let Some(max_size) = plan.gather.filter(|_| kinds == 1) {
        shared.gather = Some(Gather { max_size, max_wait: Duration::from_millis(5), across: true });
    }
    let (places, frame_calls, at_once) = plan.room;
    let engine = engine(
        vec![shared, function("source", Shape::Sample)],
        Room { places, frame_calls, at_once, ..Room::default() },
        script,
    );
    let mut batches = Vec::new();
    for (groups, size, wait_ms, budget_ms, cancel_ms, quorum) in plan.batches.clone() {
        tokio::time::sleep(Duration::from_millis(wait_ms)).await;
        let delivery = quorum.map_or_else(Delivery::default, |wanted| Delivery::quorum(wanted.min(size)));
        let spec =
            BatchSpec { batch_timeout_ns: budget_ms.map(|ms| ms * 1_000_000), delivery, ..alike(groups, size, kinds) };
        let batch = engine.submit(spec);
        if let Some(ms) = cancel_ms {
            let (engine, batch) = (engine.clone(), batch.clone());
            tokio::spawn(async move {
                tokio::time::sleep(Duration::from_millis(ms)).await;
                engine.cancel(&batch, "stop");
            });
        }
        batches
            .push((batch, budget_ms.is_some() || cancel_ms.is_some() || quorum.is_some() || total_timeout.is_some()));
    }
    for (batch, bounded) in batches {
        assert!(done(&batch).await, "a call was lost");
        for sample in 0..batch.samples() {
            let cell = batch.cell(sample, 0).unwrap();
            let fails = (seed >> (sample % kinds * 3)) % 8 < faults;
            let why = batch.note_of(sample, 0).map(|note| note.reason);
            match cell.outcome.status {
                Scored => assert!(!fails && cell.outcome.value.to_bits() == ((sample % kinds) as f64).to_bits()),
                Error => assert!(fails),
                other => {
                    assert!(bounded && matches!(other, Timeout | Cancelled | Status::Skipped), "{other:?} {why:?}");
                }
            }
        }
    }
    assert_eq!(engine.open_batches(), 0);
    engine.close().await;
}

/// A store in memory that counts what it is asked.
#[derive(Default)]
struct MemoryCache {
    outcomes: std::sync::Mutex<std::collections::HashMap<OutcomeKey, Arc<KeptOutcome>>>,
    asked: std::sync::atomic::AtomicUsize,
}

impl OutcomeCache for MemoryCache {
    fn find(&self, keys: &[OutcomeKey]) -> Vec<Option<Arc<KeptOutcome>>> {
        self.asked.fetch_add(keys.len(), std::sync::atomic::Ordering::Relaxed);
        let outcomes = self.outcomes.lock().unwrap();
        keys.iter().map(|key| outcomes.get(key).cloned()).collect()
    }

    fn keep(&self, key: OutcomeKey, outcome: Arc<KeptOutcome>) {
        self.outcomes.lock().unwrap().insert(key, outcome);
    }
}

fn cached(store: &Arc<MemoryCache>, version: u8) -> Function {
    Function { cache: Some(CachePolicy { store: store.clone(), version: [version; 32] }), ..pure("f") }
}

#[tokio::test(start_paused = true)]
async fn outcomes_that_were_kept_need_no_call() {
    let store = Arc::new(MemoryCache::default());
    let engine = engine(vec![cached(&store, 1)], wide(), |ask: &Ask| after(5.0, ask.first as f64));
    let batch = engine.run(alike(2, 8, 4)).await;
    let again = engine.run(alike(2, 8, 4)).await;
    assert_eq!(engine.log().calls().len(), 4);
    assert_eq!((batch.cached_of(0), batch.shared_of(0)), (0, 12));
    assert_eq!((again.cached_of(0), again.shared_of(0), again.elapsed_ns()), (4, 12, 0));
    assert!((0..16).all(|sample| batch.shown(sample, 0) == again.shown(sample, 0)));
    assert_eq!((0..4).map(|sample| again.cell(sample, 0).unwrap().attempts).collect::<Vec<_>>(), [0; 4]);
    let counts = engine.call_counts()[0];
    assert_eq!((counts.shared, counts.hits, counts.misses), (24, 4, 4));
    // Another engine of the same version, and one of another.
    for (version, made) in [(1, 0), (2, 4)] {
        let other = Rig::new(wide(), vec![cached(&store, version)], |_: &Ask| after(1.0, 9.0));
        other.run(alike(1, 4, 4)).await;
        assert_eq!(other.log().calls().len(), made);
    }
    assert_eq!(store.asked.load(std::sync::atomic::Ordering::Relaxed), 16, "leaders alone look");
}

#[tokio::test(start_paused = true)]
async fn failures_are_not_kept_and_abstentions_are() {
    let store = Arc::new(MemoryCache::default());
    let engine = engine(vec![cached(&store, 1)], wide(), |ask: &Ask| match ask.first % 2 {
        0 => Act::Fail { after: Duration::from_secs(1), failure: failure(FailureKind::Error) },
        _ => Act::Return { after: Duration::from_secs(1), cells: vec![Cell::Abstained] },
    });
    for calls in [2, 3] {
        let batch = engine.run(alike(1, 4, 2)).await;
        assert_eq!(statuses(&batch, 0), [Error, Status::Abstained, Error, Status::Abstained]);
        assert_eq!(engine.log().calls().len(), calls);
    }
    let cancelled = engine.submit(alike(1, 1, 1));
    engine.cancel(&cancelled, "stop");
    assert_eq!((statuses(&cancelled, 0), store.outcomes.lock().unwrap().len()), (vec![Cancelled], 1));
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 200, ..ProptestConfig::default() })]

    /// Batches come and are cancelled at any time, and the store forgets some values: each cell
    /// with a score has the score of its value.
    #[test]
    fn every_sample_gets_the_score_of_its_value(
        batches in prop::collection::vec((0..3u64, 1..20usize, 1..5usize, prop::option::of(0..4u64)), 1..8),
        forgets in 0..4u8,
    ) {
        paused(async move {
            let store = Arc::new(MemoryCache::default());
            let engine = engine(vec![cached(&store, 1)], wide(), |ask: &Ask| after(1.5, (ask.first % 4) as f64));
            let mut all = Vec::new();
            for (wait, samples, _, cancel) in batches {
                tokio::time::sleep(Duration::from_secs(wait)).await;
                store.outcomes.lock().unwrap().retain(|key, _| key[0] % 4 != forgets);
                let batch = engine.submit(alike(1, samples, 4));
                if let Some(after) = cancel {
                    let (engine, batch) = (engine.clone(), batch.clone());
                    tokio::spawn(async move {
                        tokio::time::sleep(Duration::from_millis(after * 700)).await;
                        engine.cancel(&batch, "stop");
                    });
                }
                all.push((batch, cancel.is_some()));
            }
            for (batch, may_end) in all {
                assert!(done(&batch).await);
                for sample in 0..batch.samples() {
                    let (value, status) = batch.shown(sample, 0);
                    assert!((may_end && status == Cancelled) || (status, value) == (Scored, (sample % 4) as f32));
                }
            }
        });
    }
}

//! Bytes that no driver or agent of ours sends: an error, never a panic, and nothing that stays.

use std::cell::Cell as Counter;
use std::panic;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Once};

use guerdon_core::batch::Batch;
use guerdon_core::clock::Clock;
use guerdon_core::function::{Function, Shape};
use guerdon_core::outcome::{Cell, Status};
use guerdon_core::snapshots::AgentStats;
use guerdon_remote::{Agent, AgentConfig, Link, Pace};
use guerdon_testkit::{Act, Ask, FakeLane, Room, done, function, paused};
use proptest::prelude::*;

use crate::rig::{DIGEST, MS, NodeSpec, Rig};

fn answers(ask: &Ask) -> Act {
    Act::Return { after: MS, cells: vec![Cell::Value(ask.first as f64); ask.samples] }
}

/// Items that are well formed as such, with any kind and body.
fn items() -> impl Strategy<Value = Vec<u8>> {
    let body = prop::collection::vec(prop_oneof![3 => Just(0_u8), 1 => Just(255), 2 => any::<u8>()], 0..90);
    let item = (0..9_u8, body).prop_map(|(kind, body)| {
        let mut out = (body.len() as u32).to_le_bytes().to_vec();
        out.push(kind);
        out.extend(body);
        out
    });
    prop::collection::vec(prop_oneof![4 => item, 1 => prop::collection::vec(any::<u8>(), 0..20)], 1..6)
        .prop_map(|items| items.concat())
}

/// Items of any kind about the first frames, their calls and few samples: most are well formed.
fn near_items() -> impl Strategy<Value = Vec<u8>> {
    let piece = prop_oneof![
        8 => (0..3_u8).prop_map(|byte| vec![byte]),
        1 => any::<[u8; 4]>().prop_map(Vec::from),
        3 => prop_oneof![Just(1.0), Just(f64::NAN), Just(f64::INFINITY)].prop_map(|number: f64| number.to_le_bytes().to_vec()),
        1 => prop::collection::vec(any::<u8>(), 0..40),
    ];
    let item = (0..7_u8, 0..4_u8, prop::collection::vec(piece, 0..16)).prop_map(|(kind, frame, pieces)| {
        let body = [vec![frame], pieces.concat()].concat();
        [(body.len() as u32).to_le_bytes().to_vec(), vec![kind], body].concat()
    });
    prop::collection::vec(item, 1..6).prop_map(|items| items.concat())
}

/// Where a message is changed on its way, and to what.
type Damage = (usize, usize, u8);

/// Changes a message: by its place, a byte, its end, or a piece that comes twice.
fn damaged(mut message: Vec<u8>, (what, at, byte): Damage) -> Vec<u8> {
    let at = at % message.len().max(1);
    match what {
        0 => message.truncate(at),
        1 => message.extend_from_within(at..),
        _ => message.iter_mut().skip(at).take(1).for_each(|old| *old = byte),
    }
    message
}

fn functions() -> Vec<Function> {
    vec![function("f", Shape::Sample), function("g", Shape::Group)]
}

/// The greeting of a driver of ours, of this version.
async fn hello(rig: &Rig) -> (Arc<Link>, Vec<u8>) {
    let link = rig.lane.add_node("bad").unwrap();
    let hello = link.next(Pace::AT_ONCE).await.unwrap();
    (link, hello)
}

/// What an agent answers it, that has four workers.
fn ready(hello: &[u8]) -> Vec<u8> {
    let mut ready = vec![22, 0, 0, 0, 1, hello[5], hello[6], 4, 0, 0, 0];
    ready.extend([0; 16]);
    ready
}

/// Each has its outcome: an answer or a failure, and no reward that is not a number.
fn whole(batch: &Batch, samples: usize) {
    for (sample, function) in (0..samples).flat_map(|sample| [(sample, 0), (sample, 1)]) {
        let outcome = batch.cell(sample, function).unwrap().outcome;
        assert!(outcome.status != Status::Cancelled, "{outcome:?}");
        assert!(outcome.status != Status::Ok || outcome.value.is_finite(), "{outcome:?}");
    }
}

thread_local! {
    static PANICS: Counter<usize> = const { Counter::new(0) };
}

/// Runs it with time paused. A task that panics would only be missing: this fails.
fn without_panic(test: impl Future<Output = ()>) {
    static HOOK: Once = Once::new();
    HOOK.call_once(|| {
        let before = panic::take_hook();
        panic::set_hook(Box::new(move |info| {
            PANICS.set(PANICS.get() + 1);
            before(info);
        }));
    });
    let panics = PANICS.get();
    paused(test);
    assert_eq!(PANICS.get(), panics, "something panicked");
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, cases: 50, ..ProptestConfig::default() })]

    #[test]
    fn agent_messages_never_harm_the_driver(
        messages in prop::collection::vec(prop_oneof![items(), near_items()], 1..4),
    ) {
        without_panic(async move {
            let rig = Rig::with(functions(), answers, |config| config.silence = 200 * MS);
            let (bad, hello) = hello(&rig).await;
            bad.deliver(ready(&hello));
            let batch = rig.submit(1, 10, 4);
            tokio::time::sleep(MS).await;
            assert!(bad.next(Pace::AT_ONCE).await.is_some(), "it has frames");
            rig.add("good", NodeSpec::new(1));
            for message in messages {
                bad.deliver(message);
            }
            assert!(done(&batch).await);
            whole(&batch, 40);
            rig.close().await;
        });
    }

    #[test]
    fn driver_messages_never_harm_the_agent(
        messages in prop::collection::vec(prop_oneof![items(), near_items()], 1..6),
    ) {
        without_panic(async move {
            let rig = Rig::new(functions(), answers);
            let (_, hello) = hello(&rig).await;
            let lane = Arc::new(FakeLane::new(Room::default(), answers));
            let config = AgentConfig { digest: DIGEST, slots: 1, stats: Box::new(AgentStats::default) };
            let runtime = tokio::runtime::Handle::current();
            let agent = Agent::start(&runtime, Clock::start(), functions(), vec![lane], config);
            let link = agent.connect("driver");
            link.deliver(hello);
            let answer = link.next(Pace::AT_ONCE).await.unwrap();
            assert_eq!(answer[4], 1, "it is ready");
            for message in messages {
                link.deliver(message);
            }
            tokio::time::sleep(500 * MS).await;
            link.lost("gone", true);
            tokio::time::sleep(500 * MS).await;
            assert_eq!(agent.frames(), 0);
            agent.close().await;
            rig.close().await;
        });
    }

    #[test]
    fn a_message_that_is_damaged_on_its_way_harms_nobody(
        harm in prop::collection::vec(((0..6_usize), (0..40_usize), (0..4_usize, any::<usize>(), any::<u8>())), 1..4),
    ) {
        without_panic(async move {
            let rig = Rig::with(functions(), answers, |config| config.silence = 200 * MS);
            rig.damage(move |number, message| {
                let here = harm.iter().filter(|(_, at, _)| *at as u64 == number);
                here.fold(message, |message, (_, _, how)| damaged(message, *how))
            });
            rig.add("one", NodeSpec::new(2));
            rig.add("other", NodeSpec::new(2));
            let batches: Vec<_> = (1..4).map(|number| rig.submit(number, 10, 4)).collect();
            for batch in &batches {
                assert!(done(batch).await);
                whole(batch, 40);
            }
            rig.close().await;
        });
    }
}

/// Takes the last byte from the first frame of a message, where its values end; false without a
/// frame.
fn cut_short(message: &mut Vec<u8>) -> bool {
    let mut at = 0;
    while let Some(length) = message.get(at..at + 4).map(|bytes| u32::from_le_bytes(bytes.try_into().unwrap())) {
        let end = at + 5 + length as usize;
        if message[at + 4] == 2 {
            message.remove(end - 1);
            message[at..at + 4].copy_from_slice(&(length - 1).to_le_bytes());
            return true;
        }
        at = end;
    }
    false
}

#[test]
fn a_frame_whose_values_are_damaged_fails_alone() {
    without_panic(async {
        let rig = Rig::new(vec![function("f", Shape::Sample)], answers);
        let cut = AtomicBool::new(false);
        rig.damage(move |_, mut message| {
            if !cut.load(Ordering::Relaxed) {
                cut.store(cut_short(&mut message), Ordering::Relaxed);
            }
            message
        });
        rig.add("one", NodeSpec::new(1));
        let batch = rig.submit(1, 20, 4);
        assert!(done(&batch).await);
        let failed = batch.failed();
        assert!((1..80).contains(&failed.len()), "{}", failed.len());
        for (_, _, cell, note) in failed {
            assert_eq!(cell.outcome.status, Status::Error);
            assert!(note.reason.contains("reached the node damaged"), "{}", note.reason);
        }
        assert_eq!(rig.frames_at("one"), 0, "the node is there, and has no frame left");
        let next = rig.submit(2, 20, 4);
        assert!(done(&next).await && next.failed().is_empty());
        rig.close().await;
    });
}

#[tokio::test(start_paused = true)]
async fn another_version_or_other_functions_are_refused_with_what_to_do() {
    let rig = Rig::new(vec![function("f", Shape::Sample)], answers);
    let link = rig.lane.add_node("old").unwrap();
    let mut ready = vec![22, 0, 0, 0, 1, 9, 0, 4, 0, 0, 0];
    ready.extend([0; 16]);
    link.deliver(ready);
    tokio::time::sleep(MS).await;
    let warning = rig.warnings.lock()[0].clone();
    assert!(warning.starts_with("Node 'old' can't be used: it speaks version 9"), "{warning}");
    assert!(warning.contains("install the same version"), "{warning}");

    let lane = Arc::new(FakeLane::new(Room::default(), answers));
    let config = AgentConfig { digest: [1; 32], slots: 1, stats: Box::new(AgentStats::default) };
    let functions = vec![function("g", Shape::Sample)];
    let agent = Agent::start(&tokio::runtime::Handle::current(), Clock::start(), functions, vec![lane], config);
    let (ours, theirs) = (rig.lane.add_node("other").unwrap(), agent.connect("driver"));
    theirs.deliver(ours.next(Pace::AT_ONCE).await.unwrap());
    ours.deliver(theirs.next(Pace::AT_ONCE).await.unwrap());
    tokio::time::sleep(MS).await;
    let warning = rig.warnings.lock()[1].clone();
    assert_eq!(warning, "Node 'other' can't be used: its agent has other reward functions than this process.");
    agent.close().await;
    rig.close().await;
}

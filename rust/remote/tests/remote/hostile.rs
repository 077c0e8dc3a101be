//! Bytes that no driver or agent of ours sends: an error, never a panic, and nothing that stays.

use std::time::Duration;

use guerdon_core::clock::Clock;
use guerdon_core::function::Shape;
use guerdon_core::outcome::{Cell, Status};
use guerdon_remote::{Agent, AgentConfig, AgentStats};
use guerdon_testkit::{Act, Ask, FakeLane, Room, done, function, paused};
use proptest::prelude::*;
use std::sync::Arc;

use crate::rig::{DIGEST, NodeSpec, Rig};

const MS: Duration = Duration::from_millis(1);

fn answers(ask: &Ask) -> Act {
    Act::Return { after: MS, cells: vec![Cell::Value(ask.first as f64); ask.samples] }
}

/// Items that are well formed as such, with any kind and body.
fn items() -> impl Strategy<Value = Vec<u8>> {
    let body = prop::collection::vec(prop_oneof![3 => Just(0_u8), 1 => Just(255), 2 => any::<u8>()], 0..90);
    let item = (0..18_u8, body).prop_map(|(kind, body)| {
        let mut out = (body.len() as u32).to_le_bytes().to_vec();
        out.push(kind);
        out.extend(body);
        out
    });
    prop::collection::vec(prop_oneof![4 => item, 1 => prop::collection::vec(any::<u8>(), 0..20)], 1..6)
        .prop_map(|items| items.concat())
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, cases: 200, ..ProptestConfig::default() })]

    #[test]
    fn what_an_agent_sends_harms_nobody(messages in prop::collection::vec(items(), 1..4)) {
        paused(async move {
            let rig = Rig::with(vec![function("f", Shape::Sample)], answers, |config| config.silence = 200 * MS);
            let bad = rig.lane.add_node("bad").unwrap();
            let mut ready = vec![22, 0, 0, 0, 1, 2, 0, 4, 0, 0, 0];
            ready.extend([0; 16]);
            bad.deliver(ready);
            let batch = rig.submit(1, 40, 1);
            tokio::time::sleep(MS).await;
            rig.add("good", NodeSpec::new(1));
            for message in messages {
                bad.deliver(message);
            }
            assert!(done(&batch).await);
            for sample in 0..40 {
                let outcome = batch.cell(sample, 0).unwrap().outcome;
                assert!(outcome.status != Status::Cancelled, "{outcome:?}");
            }
            rig.close().await;
        });
    }

    #[test]
    fn what_a_driver_sends_harms_nobody(messages in prop::collection::vec(items(), 1..6)) {
        paused(async move {
            let lane = Arc::new(FakeLane::new(Room::default(), answers));
            let config = AgentConfig { digest: DIGEST, slots: 1, stats: Box::new(AgentStats::default) };
            let functions = vec![function("f", Shape::Sample)];
            let runtime = tokio::runtime::Handle::current();
            let agent = Agent::start(&runtime, Clock::start(), functions, vec![lane], config);
            let link = agent.connect("driver");
            let mut hello = vec![42, 0, 0, 0, 1, 2, 0];
            hello.extend(DIGEST);
            hello.extend([0; 8]);
            link.deliver(hello);
            for message in messages {
                link.deliver(message);
            }
            tokio::time::sleep(500 * MS).await;
            link.lost("gone", true);
            tokio::time::sleep(500 * MS).await;
            assert_eq!(agent.frames(), 0);
            agent.close().await;
        });
    }
}

#[test]
fn another_version_or_other_functions_are_refused_with_what_to_do() {
    paused(async {
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
        theirs.deliver(ours.next().await.unwrap());
        ours.deliver(theirs.next().await.unwrap());
        tokio::time::sleep(MS).await;
        let warning = rig.warnings.lock()[1].clone();
        assert_eq!(warning, "Node 'other' can't be used: its agent has other reward functions than this process.");
        agent.close().await;
        rig.close().await;
    });
}

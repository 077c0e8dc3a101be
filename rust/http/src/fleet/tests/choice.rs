//! Properties of the choice, whatever the endpoints do.

use proptest::prelude::*;

use crate::fleet::RequestKey;
use crate::fleet::balancer::{Balancer, ChosenEndpoint};
use crate::fleet::health::{Availability, Refusal, RequestEnd};
use guerdon_core::limits::Signal;

const MS: u64 = 1_000_000;

/// Next event.
#[derive(Clone, Debug)]
enum Step {
    Send {
        group: usize,
        attempt: u16,
    },
    /// The request with this number, of those in flight, ends so.
    End(usize, RequestEnd),
    Wait(u64),
    /// The list becomes these endpoints.
    Set(Vec<u8>),
}

fn ended() -> impl Strategy<Value = RequestEnd> {
    prop_oneof![
        4 => Just(RequestEnd::Answered),
        1 => Just(RequestEnd::Dropped),
        1 => Just(RequestEnd::Overtaken),
        2 => Just(RequestEnd::Failed(Signal::NoConnection, None)),
        1 => Just(RequestEnd::Failed(Signal::Failed, None)),
        1 => Just(RequestEnd::Failed(Signal::TimedOut, None)),
        1 => Just(RequestEnd::Failed(Signal::Answered, Some(300 * MS))),
        1 => Just(RequestEnd::Refused(Refusal::Endpoint)),
        1 => Just(RequestEnd::Refused(Refusal::Unreadable)),
    ]
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        8 => (0..20_usize, 1..3_u16).prop_map(|(group, attempt)| Step::Send { group, attempt }),
        6 => (any::<usize>(), ended()).prop_map(|(which, ended)| Step::End(which, ended)),
        2 => (1..20_000_u64).prop_map(|wait| Step::Wait(wait * MS)),
        1 => prop::collection::btree_set(0..6_u8, 1..6).prop_map(|all| Step::Set(all.into_iter().collect())),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 256, ..ProptestConfig::default() })]

    /// fleet-1, fleet-3, and counts that add up.
    #[test]
    fn the_choice_holds_its_promises(steps in prop::collection::vec(step(), 1..300)) {
        let mut balancer: Balancer<u8> = Balancer::new(64, None);
        balancer.set([0, 1, 2, 3].map(|one| (one, 1.0)), u8::eq);
        let (mut now_ns, mut sample) = (1, 0);
        let mut in_flight: Vec<(ChosenEndpoint<u8>, RequestKey)> = Vec::new();
        for step in steps {
            match step {
                Step::Wait(wait_ns) => now_ns += wait_ns,
                Step::Set(all) => balancer.set(all.into_iter().map(|one| (one, 1.0)), u8::eq),
                Step::End(_, _) if in_flight.is_empty() => {}
                Step::End(which, ended) => {
                    let (chosen, key) = in_flight.swap_remove(which % in_flight.len());
                    balancer.end(chosen.id, chosen.sent, &key, ended, now_ns, 0.5);
                    if ended.goes_on(1) {
                        let again = balancer.choose(now_ns, &key, &[chosen.id]);
                        prop_assert!(again.as_ref().is_none_or(|again| again.id != chosen.id));
                        in_flight.extend(again.map(|again| (again, key)));
                    }
                }
                Step::Send { group, attempt } => {
                    sample += 1;
                    let key = RequestKey { batch: 1, own_batch: 1, group, sample, group_size: 8, attempt, waiting: 0 };
                    let before = balancer.entries().to_vec();
                    let several = before.len() > 1;
                    let up = |state| !matches!(state, Availability::Down(_));
                    let any_up = before.iter().any(|one| up(one.health.availability(now_ns)));
                    let chosen = balancer.choose(now_ns, &key, &[]).unwrap();
                    let entry = before.iter().find(|one| one.id == chosen.id).unwrap();
                    let state = entry.health.availability(now_ns);
                    prop_assert!(!several || !any_up || up(state), "{state:?} while another is up");
                    in_flight.push((chosen, key));
                }
            }
            for entry in balancer.entries() {
                let sent = in_flight.iter().filter(|(chosen, _)| chosen.id == entry.id).count();
                prop_assert_eq!(entry.health.in_flight, sent);
            }
        }
    }

    /// fleet-2: of requests that no endpoint answers yet, none has more than its share and a
    /// quarter; a group moves only where that makes it.
    #[test]
    fn the_load_bound_holds(groups in prop::collection::vec(0..12_usize, 1..400), endpoints in 2..10_u8) {
        let mut balancer: Balancer<u8> = Balancer::new(usize::MAX, None);
        balancer.set((0..endpoints).map(|one| (one, 1.0)), u8::eq);
        for (sample, group) in groups.iter().enumerate() {
            let key = RequestKey { batch: 1, own_batch: 1, group: *group, sample, group_size: 8, attempt: 1, waiting: 0 };
            balancer.choose(1, &key, &[]).unwrap();
            let bound = (1.25 * (sample + 1) as f64 / f64::from(endpoints)).ceil() as usize;
            for entry in balancer.entries() {
                prop_assert!(entry.health.in_flight <= bound, "{} of {bound}", entry.health.in_flight);
            }
        }
    }

    /// When an endpoint leaves, only its groups move; when one comes, none does.
    #[test]
    fn few_groups_move(leaves in 0..8_u8, groups in 1..100_usize) {
        let mut balancer: Balancer<u8> = Balancer::new(1 << 20, None);
        balancer.set((0..8).map(|one| (one, 1.0)), u8::eq);
        let ask = |balancer: &mut Balancer<u8>, group: usize| {
            let key = RequestKey { batch: 1, own_batch: 1, group, sample: group, group_size: 8, attempt: 1, waiting: 1 << 20 };
            let chosen = balancer.choose(1, &key, &[]).unwrap();
            balancer.end(chosen.id, chosen.sent, &key, RequestEnd::Answered, 2, 0.5);
            chosen.member
        };
        let before: Vec<u8> = (0..groups).map(|group| ask(&mut balancer, group)).collect();
        balancer.set((0..8).filter(|one| *one != leaves).map(|one| (one, 1.0)), u8::eq);
        let after: Vec<u8> = (0..groups).map(|group| ask(&mut balancer, group)).collect();
        for (one, other) in before.iter().zip(&after) {
            prop_assert!(*one == leaves || one == other);
            prop_assert!(*other != leaves);
        }
        balancer.set((0..9).map(|one| (one, 1.0)), u8::eq);
        let back: Vec<u8> = (0..groups).map(|group| ask(&mut balancer, group)).collect();
        prop_assert_eq!(after, back);
    }
}

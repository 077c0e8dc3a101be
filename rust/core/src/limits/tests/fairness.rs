//! Whose turn it is, for any leases.

use proptest::prelude::*;

use super::super::fairness::{least_served, served_so_far, yields_place, yields_turn_until};
use super::super::lease::Lease;
use super::S;

fn leases() -> impl Strategy<Value = Vec<Lease>> {
    let lease =
        (0..12_u64, any::<bool>(), 0..20_u64, any::<bool>()).prop_map(|(in_flight, waits, served, gone)| Lease {
            pid: u64::from(!gone),
            in_flight: if gone { 0 } else { in_flight },
            waits_until_ns: if waits && !gone { S + 1 } else { 0 },
            served,
            ..Lease::default()
        });
    prop::collection::vec(lease, 1..8)
}

proptest! {
    #[test]
    fn engine_below_its_share_never_yields_and_one_goes(leases in leases(), most in 1..32_usize) {
        let live: Vec<usize> = (0..leases.len()).filter(|me| !leases[*me].is_empty()).collect();
        let in_flight = |me: usize| usize::try_from(leases[me].in_flight).unwrap();
        let active = |me: usize| leases[me].in_flight > 0 || leases[me].waits(S);
        let yields = |me: usize| yields_place(&leases, me, in_flight(me), most, S);
        for me in live.iter().copied().filter(|me| active(*me)) {
            let share = (most / live.iter().filter(|other| active(**other)).count()).max(1);
            let poorer = live.iter().any(|other| *other != me && leases[*other].waits(S) && in_flight(*other) < share);
            prop_assert_eq!(yields(me), in_flight(me) >= share && poorer, "share {}", share);
        }
        let waiting: Vec<usize> = live.iter().copied().filter(|me| leases[*me].waits(S)).collect();
        prop_assert!(waiting.is_empty() || waiting.iter().any(|me| !yields(*me)), "all leave it to others");
        // If they take turns, the engine served least goes.
        let owes = |me: usize| least_served(&leases, me, most, S).is_some_and(|least| leases[me].served > least);
        let idle = waiting.iter().filter(|me| in_flight(**me) == 0).min_by_key(|me| leases[**me].served);
        prop_assert!(idle.is_none_or(|me| !owes(*me) && !yields(*me)));
        let turn = |me: usize| yields_turn_until(&leases, me, S, S);
        prop_assert!(waiting.is_empty() || waiting.iter().any(|me| turn(*me).is_none()));
        // An engine that was left behind is waited for a few milliseconds only.
        prop_assert!(live.iter().all(|me| turn(*me).is_none_or(|until_ns| until_ns <= S + S / 50)));
        // One that comes has no more turns to make up for than those that wait.
        for me in live {
            let least = waiting.iter().filter(|other| **other != me).map(|other| leases[*other].served).min();
            let active = (0..leases.len()).filter(|other| *other != me && !leases[*other].is_empty() && active(*other));
            let least_active = active.map(|other| leases[other].served).min();
            prop_assert!(served_so_far(&leases, me, S) >= least_active.or(least).unwrap_or(0));
        }
    }
}

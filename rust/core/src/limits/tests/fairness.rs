//! Whose turn it is, for any leases; and pauses against a model.

use proptest::prelude::*;

use super::super::breaker::History;
use super::super::fairness::{least_served, served_so_far, yields_place, yields_turn_until};
use super::super::lease::Lease;
use super::super::rate_limiter::{CallEnd, Decision, Feedback, Grant, RateLimiter, Rules, Tokens};

const S: u64 = 1_000_000_000;

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
    fn who_has_less_than_its_share_never_yields_and_somebody_goes(leases in leases(), most in 1..32_usize) {
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
        // Where they take turns, who was served least goes.
        let owes = |me: usize| least_served(&leases, me, most, S).is_some_and(|least| leases[me].served > least);
        let idle = waiting.iter().filter(|me| in_flight(**me) == 0).min_by_key(|me| leases[**me].served);
        prop_assert!(idle.is_none_or(|me| !owes(*me) && !yields(*me)));
        let turn = |me: usize| yields_turn_until(&leases, me, S, S);
        prop_assert!(waiting.is_empty() || waiting.iter().any(|me| turn(*me).is_none()));
        // Whoever is left behind is waited for a few milliseconds only.
        prop_assert!(live.iter().all(|me| turn(*me).is_none_or(|until_ns| until_ns <= S + S / 50)));
        // One that comes has no more turns to make up for than those that wait.
        for me in live {
            let least = waiting.iter().filter(|other| **other != me).map(|other| leases[*other].served).min();
            let active = (0..leases.len()).filter(|other| *other != me && !leases[*other].is_empty() && active(*other));
            let least_active = active.map(|other| leases[other].served).min();
            prop_assert!(served_so_far(&leases, me, S) >= least_active.or(least).unwrap_or(0));
        }
    }

    /// What may be in flight after a refusal, told by all that happened since: one more with each
    /// that was answered, and twice as many once none was refused in time.
    #[test]
    fn after_a_refusal_calls_go_as_others_are_let_through(
        steps in prop::collection::vec((0..290_u64, 0..5_u8, any::<prop::sample::Index>()), 1..200),
    ) {
        let rules = Rules { concurrency: Some(1000), ..Rules::default() };
        let (mut limiter, mut now_ns, mut in_flight) = (RateLimiter::default(), S, Vec::<Grant>::new());
        // Since the last pause: when it ends, calls in flight that were sent since, when the last
        // one was, and how many may be.
        let (mut paused, mut resumed_ns, mut since, mut sent_ns, mut most) = (false, 0, 0_u64, 0, 1_u64);
        let (mut refusals, mut refusal_ns) = (0_u32, 0_u64);
        for (gap_ms, what, at) in steps {
            now_ns += gap_ms * 1_000_000;
            if what < 3 || in_flight.is_empty() {
                match limiter.ask(&rules, now_ns, Tokens::Estimated(None), in_flight.len()) {
                    Decision::Go(grant) => {
                        if since >= most && now_ns >= sent_ns + (refusal_ns * 4).clamp(S / 4, 60 * S) {
                            most += since;
                        }
                        prop_assert!(!paused || (now_ns >= resumed_ns && since < most), "{since} of {most}");
                        (since, sent_ns) = (since + 1, now_ns);
                        in_flight.push(grant);
                    }
                    Decision::Wait { until_ns, .. } => prop_assert!(until_ns > now_ns),
                    Decision::Throttled(_) => prop_assert!(refusals > 1),
                    Decision::BreakerOpen(_) => prop_assert!(false),
                }
                continue;
            }
            let grant = in_flight.swap_remove(at.index(in_flight.len()));
            let feedback = if what == 3 { Feedback::Ok } else { Feedback::Throttled(None) };
            if what == 4 {
                refusal_ns = (now_ns - grant.sent_ns).max(refusal_ns - refusal_ns / 8);
            }
            // What was sent before the last refusal says nothing of the time since.
            let news = !paused || grant.sent_ns >= resumed_ns;
            limiter.record(&rules, now_ns, grant, CallEnd { feedback, tokens: None, history: History::default() }, 0, 1.0);
            if !news {
                continue;
            }
            since = since.saturating_sub(1);
            if what == 3 {
                (most, refusals) = (most + 1, 0);
            } else {
                let pause_ns = (S / 2 * 2_u64.pow(refusals.min(10))).min(8 * S);
                (paused, resumed_ns, since, most, refusals) = (true, now_ns + pause_ns, 0, 1, refusals + 1);
            }
        }
    }
}

//! The pace of a server that does not say when to come again.

use proptest::prelude::*;

use super::super::feedback::Feedback;
use super::super::rate_limiter::{Decision, Grant, RateLimiter, Rules, Tokens};
use super::{MS, S, ended};

/// A client of a server that answers at once.
struct Client {
    limiter: RateLimiter,
    rules: Rules,
    now_ns: u64,
}

impl Client {
    fn new() -> Self {
        let rules = Rules { concurrency: Some(10), ..Rules::default() };
        Self { limiter: RateLimiter::default(), rules, now_ns: S }
    }

    /// Waits until a call may go.
    fn go(&mut self) -> Grant {
        loop {
            match self.limiter.ask(&self.rules, self.now_ns, Tokens::Estimated(None), 0) {
                Decision::Go(grant) => return grant,
                Decision::Wait { until_ns, .. } => self.now_ns = until_ns,
                decision => panic!("{decision:?}"),
            }
        }
    }

    fn record(&mut self, grant: Grant, feedback: Feedback) {
        self.limiter.record(&self.rules, self.now_ns, grant, ended(feedback, None), 0, 1.0);
    }

    /// Makes calls until `until_ns`. The server refuses those within `every_ns` of the last one
    /// that was taken. Returns the numbers of calls taken and refused.
    fn spend(&mut self, every_ns: u64, until_ns: u64) -> (u64, u64) {
        let (mut taken, mut refused, mut free_ns) = (0, 0, 0);
        loop {
            let grant = self.go();
            if self.now_ns >= until_ns {
                return (taken, refused);
            }
            if self.now_ns < free_ns {
                refused += 1;
                self.record(grant, Feedback::Throttled(None));
            } else {
                (taken, free_ns) = (taken + 1, self.now_ns + every_ns);
                self.record(grant, Feedback::Ok);
            }
            self.now_ns += MS;
        }
    }
}

proptest! {
    /// A server gets most of the requests that fit its pace, after any other, and refuses fewer.
    #[test]
    fn a_server_gets_requests_at_its_pace(paces_ms in prop::collection::vec(20_u64..1000, 1..4)) {
        let mut client = Client::new();
        for every_ms in paces_ms {
            let begun_ns = client.now_ns;
            let (taken, refused) = client.spend(every_ms * MS, begun_ns + 60 * S);
            prop_assert!(taken * every_ms * 10 >= 60_000 * 7, "{taken} at {every_ms} ms");
            prop_assert!(refused <= taken, "{refused} of {taken} at {every_ms} ms");
        }
    }
}

#[test]
fn a_pace_is_gone_seconds_after_the_last_refusal() {
    let mut client = Client::new();
    client.spend(100 * MS, 30 * S);
    let (taken, refused) = client.spend(0, client.now_ns + 2 * S);
    assert!(taken > 1000 && refused == 0, "{taken} of 2000, {refused} refused");
}

/// A server that is down, or overloaded, is left in peace: after a failure refusals are pauses.
#[test]
fn a_server_that_fails_has_no_pace() {
    let mut client = Client::new();
    client.spend(100 * MS, 10 * S);
    let grant = client.go();
    client.record(grant, Feedback::Failed);
    let pauses = (0..100).map(|_| {
        let (grant, begun_ns) = (client.go(), client.now_ns);
        client.record(grant, Feedback::Throttled(None));
        client.go();
        client.now_ns - begun_ns
    });
    assert_eq!(pauses.into_iter().find(|pause_ns| *pause_ns > 0), Some(500 * MS));
}

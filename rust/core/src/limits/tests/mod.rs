//! Tests of the limits: the rate limiter alone, the file that processes share, and the limiter over
//! both.

mod breaker;
mod fairness;
mod limiter;
mod pace;
mod pauses;
mod rate_limiter;
mod shared_file;
mod tokens;
mod trials;
mod window;

use std::path::PathBuf;

use guerdon_testkit::TempFolder;

use super::breaker::History;
use super::feedback::{CallEnd, Feedback};
use super::rate_limiter::{Decision, Grant, RateLimiter, Rules, Tokens};

const MS: u64 = 1_000_000;
const S: u64 = 1_000_000_000;

fn ended(feedback: Feedback, tokens: Option<f64>) -> CallEnd {
    CallEnd { feedback, tokens, history: History::default() }
}

fn at_most(concurrency: usize) -> Rules {
    Rules { concurrency: Some(concurrency), ..Rules::default() }
}

/// Asks for a call whose tokens nobody knows, while this many are in flight.
fn ask(limiter: &mut RateLimiter, rules: &Rules, now_ns: u64, in_flight: usize) -> Decision {
    limiter.ask(rules, now_ns, Tokens::Estimated(None), in_flight)
}

/// The call, if it may go.
fn go(limiter: &mut RateLimiter, rules: &Rules, now_ns: u64, in_flight: usize) -> Option<Grant> {
    match ask(limiter, rules, now_ns, in_flight) {
        Decision::Go(grant) => Some(grant),
        _ => None,
    }
}

/// The file of a key.
fn file(folder: &TempFolder) -> PathBuf {
    folder.0.join("key")
}

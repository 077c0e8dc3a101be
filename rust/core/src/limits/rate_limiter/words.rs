//! A rate limiter as numbers of a file that processes share.

use super::super::breaker::{self, Breaker};
use super::super::pace::Pace;
use super::super::pauses::Pauses;
use super::super::window::Window;
use super::RateLimiter;

/// Numbers of a rate limiter in a file.
pub(in crate::limits) const WORDS: usize = 26 + breaker::WORDS;

impl RateLimiter {
    pub(in crate::limits) fn to_words(&self) -> [u64; WORDS] {
        let mut words = [0; WORDS];
        let (own, breaker) = words.split_at_mut(WORDS - breaker::WORDS);
        own.copy_from_slice(&[
            self.requests_ns,
            self.tokens_ns,
            self.mean_tokens.to_bits(),
            self.factor.to_bits(),
            self.lowered_ns,
            self.raised_ns,
            self.pauses.until_ns,
            self.tpm.to_bits(),
            self.pauses.count,
            self.pauses.since_ns,
            self.window.most,
            self.window.in_flight,
            self.window.sent_ns,
            self.window.refusal_ns,
            self.pauses.refused << 32 | self.pauses.answered,
            self.pauses.single,
            self.factor_before.to_bits(),
            self.most_before,
            self.pace.interval_ns,
            self.pace.sent_ns,
            self.pace.before_ns,
            self.pace.changed_ns,
            self.pace.steps,
            self.pace.failed_ns,
            self.window.held,
            self.window.taken,
        ]);
        breaker.copy_from_slice(&self.breaker.to_words());
        words
    }

    pub(in crate::limits) fn from_words(words: [u64; WORDS]) -> Self {
        let [requests_ns, tokens_ns, mean_tokens, factor, lowered_ns, raised_ns, until_ns, tpm, rest @ ..] = words;
        let [count, since_ns, most, in_flight, sent_ns, refusal_ns, rest @ ..] = rest;
        let [last, single, factor_before, most_before, rest @ ..] = rest;
        let [interval_ns, paced_ns, before_ns, changed_ns, steps, failed_ns, held, taken, breaker @ ..] = rest;
        let (answered, refused) = (last & u64::from(u32::MAX), last >> 32);
        Self {
            requests_ns,
            tokens_ns,
            mean_tokens: f64::from_bits(mean_tokens),
            factor: f64::from_bits(factor),
            lowered_ns,
            raised_ns,
            tpm: f64::from_bits(tpm),
            pauses: Pauses { until_ns, count, since_ns, answered, refused, single },
            window: Window { most, in_flight, sent_ns, refusal_ns, held, taken },
            pace: Pace { interval_ns, sent_ns: paced_ns, before_ns, changed_ns, steps, failed_ns },
            factor_before: f64::from_bits(factor_before),
            most_before,
            breaker: Breaker::from_words(breaker),
        }
    }
}

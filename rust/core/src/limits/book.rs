//! The book of one limit: what was handed out, and what the endpoint said to it. Arithmetic only: no clock, no lock, no file.
//!
//! - B-1  In any stretch of time of length `t` there are at most `1 + (t + SLACK) ÷ interval` permits, the interval being
//!   `60 s ÷ (rpm × PACE)`: requests come at a steady rate, there is no opening burst, and a timer that is late by less than `SLACK` loses
//!   nothing. With PACE just below 1, no sliding minute holds more than `rpm`, and what the network adds in jitter has some room.
//! - B-2  Tokens are paid for at the same steady rate, by an estimate before the call and by the difference when its use is known. What no call can
//!   have used, more than `LONGEST` of the whole rate, is not believed: it would hold up all that share the book.
//! - B-3  "Too many requests" cuts all rates (without rates: the calls at a time), once for all calls that were under way; answers grow them
//!   back with time, up to what was set.
//! - B-4  After `retry_after` nothing is handed out until then, whoever was told.
//! - B-5  An endpoint that fails `SICK` calls in a row, without an answer to what was sent in between, gets one probe at a time, with growing pauses; the first
//!   answer ends that. One that has been dead for `PATIENCE` refuses calls between probes instead of letting them wait.
//! - B-6  Whatever numbers stand in the book (another process wrote them), no wait is longer than `LONGEST`, and none longer than
//!   this one's own rates explain: who set others before holds nobody up. Tokens that are owed stay as many.

use std::time::Duration;

use crate::clock::nanos;

const MINUTE_NS: f64 = 60e9;
/// Share of an allowance that is used: the rest is what a sliding window and a network's jitter need.
const PACE: f64 = 0.98;
/// How late a request may be without the next ones having to be late too.
const SLACK_NS: u64 = 25_000_000;
/// What is left of the rates after a cut: a first one, which may be the network's doing, and one that comes soon after another.
const FIRST_CUT: f64 = 0.95;
const CUT: f64 = 0.85;
const SOON_NS: u64 = 10_000_000_000;
/// The least that is ever left, and how long it takes to grow from nothing to all.
const LEAST: f64 = 0.02;
const GROWTH_NS: f64 = 30e9;
/// Growth is for time in which there were answers: a pause between two of them counts up to this.
const GROWTH_STEP_NS: u64 = 1_000_000_000;
/// Failures in a row after which an endpoint is taken for dead.
const SICK: u64 = 5;
const FIRST_REST_NS: u64 = 1_000_000_000;
const LONGEST_REST_NS: u64 = 15_000_000_000;
/// A probe that says nothing for so long is given up for another.
const PROBE_NS: u64 = 60_000_000_000;
/// Longer than a server of models takes to start.
const PATIENCE_NS: u64 = 300_000_000_000;
const LONGEST_NS: u64 = 600_000_000_000;
/// How much later the clock of another process may have been read, whose turn came first: on a machine in use, and on one that hardly moves.
const STALE_NS: u64 = 1_000_000_000;
const AHEAD_NS: u64 = 60_000_000_000;
/// Tokens of a call of which nothing is known.
const UNKNOWN_TOKENS: f64 = 1000.0;

/// What was set for an endpoint.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Rules {
    /// Requests a minute.
    pub rpm: Option<f64>,
    /// Tokens a minute.
    pub tpm: Option<f64>,
    /// Calls at a time.
    pub concurrency: Option<usize>,
}

/// What a call learnt of the endpoint.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Heard {
    /// It answered, if only to refuse this request.
    Answer,
    /// Too many requests; come back after this time.
    Busy(Option<Duration>),
    /// It can't be reached, or fails by itself.
    Sick,
    /// Nothing: the call was cancelled, timed out, or failed for reasons of its own.
    Nothing,
}

/// Tokens of a call, before it is made.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Tokens {
    /// As its function counts them.
    Counted(f64),
    /// Taken for each call, as long as none has told; `None`: nobody knows.
    About(Option<f64>),
}

/// A call that was let through.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Passed {
    pub sent_ns: u64,
    /// Tokens that were paid for.
    pub tokens: f64,
    pub probe: bool,
}

/// Whether another call may go.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Verdict {
    Go(Passed),
    /// Ask again then; sooner when a call has ended, if `on_release`.
    Wait {
        until_ns: u64,
        on_release: bool,
    },
    /// The endpoint is dead (B-5), for so many nanoseconds.
    Dead(u64),
}

/// See the module.
#[derive(Clone, Debug, PartialEq)]
pub struct Book {
    /// When the next request is due, and when the tokens so far are paid for.
    requests_ns: u64,
    tokens_ns: u64,
    /// Tokens a minute, by which those are paid for; 0: none were yet.
    tpm: f64,
    /// Tokens of a call, by those that told.
    mean_tokens: f64,
    /// What is left of the rates (B-3), when they were last cut and last grew.
    factor: f64,
    cut_ns: u64,
    grown_ns: u64,
    paused_ns: u64,
    /// Failures in a row, when the first of them was heard, probes that failed (B-5).
    sick: u64,
    sick_since_ns: u64,
    rests: u64,
    resting_ns: u64,
    probing_ns: u64,
}

impl Default for Book {
    fn default() -> Self {
        Self {
            requests_ns: 0,
            tokens_ns: 0,
            tpm: 0.0,
            mean_tokens: 0.0,
            factor: 1.0,
            cut_ns: 0,
            grown_ns: 0,
            paused_ns: 0,
            sick: 0,
            sick_since_ns: 0,
            rests: 0,
            resting_ns: 0,
            probing_ns: 0,
        }
    }
}

#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "times are positive, and saturate")]
fn rounded(ns: f64) -> u64 {
    ns as u64
}

#[expect(clippy::cast_precision_loss, reason = "a month in nanoseconds is exact to the microsecond")]
const fn real(ns: u64) -> f64 {
    ns as f64
}

impl Book {
    /// Asks for a call that takes `tokens` while `in_use` are under way.
    pub fn ask(&mut self, rules: &Rules, now_ns: u64, tokens: Tokens, in_use: usize) -> Verdict {
        let wait = |until_ns: u64| Verdict::Wait {
            until_ns: until_ns.min(now_ns.saturating_add(LONGEST_NS)),
            on_release: false,
        };
        if self.paused_ns > now_ns {
            return wait(self.paused_ns);
        }
        if self.is_dead() && self.resting_ns > now_ns {
            let dead_ns = now_ns.saturating_sub(self.sick_since_ns);
            return if dead_ns >= PATIENCE_NS { Verdict::Dead(dead_ns) } else { wait(self.resting_ns) };
        }
        if self.is_dead() && self.probing_ns > now_ns {
            return Verdict::Wait { until_ns: self.probing_ns.min(now_ns + PROBE_NS), on_release: true };
        }
        if rules.concurrency.is_some_and(|most| in_use >= self.shrunk(rules, most)) {
            return Verdict::Wait { until_ns: u64::MAX, on_release: true };
        }
        // One interval away at most, if it was this rate that put it there (B-6); by a clock that may have been read a little later than this one.
        let interval_ns = self.cost_ns(rules.rpm, 1.0);
        let latest_ns = now_ns.saturating_add(interval_ns).saturating_add(SLACK_NS).saturating_add(STALE_NS);
        self.requests_ns = self.requests_ns.min(latest_ns);
        self.convert(rules, now_ns);
        let rates = [(rules.rpm, self.requests_ns), (rules.tpm, self.tokens_ns)];
        let due_ns = rates.iter().filter(|(rate, _)| rate.is_some()).map(|(_, due_ns)| *due_ns).max().unwrap_or(0);
        if due_ns > now_ns + SLACK_NS {
            let until_ns = (due_ns - SLACK_NS).min(now_ns.saturating_add(LONGEST_NS));
            // A call that tells of fewer tokens than were paid for makes room sooner (B-2).
            let by_tokens = rules.tpm.is_some() && due_ns == self.tokens_ns;
            return Verdict::Wait { until_ns, on_release: by_tokens && in_use > 0 };
        }
        let tokens = match tokens {
            Tokens::Counted(tokens) => tokens,
            Tokens::About(_) if self.mean_tokens > 0.0 => self.mean_tokens,
            Tokens::About(tokens) => tokens.unwrap_or(UNKNOWN_TOKENS),
        };
        // From then on: time in which nothing was asked for is not saved up (B-1).
        self.requests_ns = self.requests_ns.max(now_ns).saturating_add(interval_ns);
        self.tokens_ns = self.tokens_ns.max(now_ns).saturating_add(self.cost_ns(rules.tpm, tokens));
        let probe = self.is_dead();
        if probe {
            self.probing_ns = now_ns + PROBE_NS;
        }
        Verdict::Go(Passed { sent_ns: now_ns, tokens, probe })
    }

    /// Takes in how a call ended; `tokens` are those it used, if it told, and `random` is uniform in [0, 1).
    pub fn learn(
        &mut self,
        rules: &Rules,
        now_ns: u64,
        passed: Passed,
        heard: Heard,
        tokens: Option<f64>,
        random: f64,
    ) {
        self.convert(rules, now_ns);
        if let Some(tokens) = tokens.filter(|tokens| *tokens >= 0.0 && *tokens <= most_tokens(rules)) {
            let paid_ns = self.cost_ns(rules.tpm, passed.tokens);
            let all_ns = self.cost_ns(rules.tpm, tokens);
            let owed_ns = self.tokens_ns.saturating_add(all_ns).saturating_sub(paid_ns);
            self.tokens_ns = owed_ns.min(now_ns.saturating_add(LONGEST_NS));
            let known = if self.mean_tokens > 0.0 { self.mean_tokens } else { tokens };
            self.mean_tokens = (known * 0.9 + tokens * 0.1).max(1.0);
        }
        match heard {
            Heard::Answer => {
                self.revive(passed);
                if passed.sent_ns >= self.cut_ns {
                    let since_ns = self.grown_ns.max(self.cut_ns);
                    let step_ns = now_ns.saturating_sub(since_ns).min(GROWTH_STEP_NS);
                    self.factor = (self.factor + real(step_ns) / GROWTH_NS).min(1.0);
                    self.grown_ns = now_ns;
                }
            }
            Heard::Busy(retry_after) => {
                self.revive(passed);
                // What was sent before the last cut says nothing about the rate since (B-3).
                if passed.sent_ns >= self.cut_ns {
                    let again = self.cut_ns != 0 && now_ns.saturating_sub(self.cut_ns) < SOON_NS;
                    self.factor = (self.factor * if again { CUT } else { FIRST_CUT }).max(LEAST);
                    self.cut_ns = now_ns.max(passed.sent_ns + 1);
                }
                if let Some(after) = retry_after {
                    self.paused_ns = self.paused_ns.max(now_ns.saturating_add(nanos(after).min(LONGEST_NS)));
                }
            }
            Heard::Sick => {
                if self.sick == 0 {
                    self.sick_since_ns = now_ns;
                }
                let was_dead = self.is_dead();
                self.sick = self.sick.saturating_add(1);
                if self.is_dead() && (passed.probe || !was_dead) {
                    self.rest(now_ns, random);
                }
            }
            Heard::Nothing if passed.probe => self.rest(now_ns, random),
            Heard::Nothing => {}
        }
    }

    /// Makes nothing of a call that was never made: what it would have used is there for the next.
    pub fn forget(&mut self, rules: &Rules, passed: Passed) {
        self.requests_ns = self.requests_ns.saturating_sub(self.cost_ns(rules.rpm, 1.0));
        self.tokens_ns = self.tokens_ns.saturating_sub(self.cost_ns(rules.tpm, passed.tokens));
        if passed.probe {
            self.probing_ns = 0;
        }
    }

    /// Whether a process whose clock is this one's can have written it: no time is further ahead than any that is ever set, no number is none.
    #[must_use]
    pub fn fits(&self, now_ns: u64) -> bool {
        let soon_ns = now_ns.saturating_add(LONGEST_NS).saturating_add(AHEAD_NS);
        let times = [
            self.requests_ns,
            self.tokens_ns,
            self.cut_ns,
            self.grown_ns,
            self.paused_ns,
            self.sick_since_ns,
            self.resting_ns,
            self.probing_ns,
        ];
        let rates = (LEAST..=1.0).contains(&self.factor)
            && [self.mean_tokens, self.tpm].iter().all(|number| number.is_finite() && *number >= 0.0);
        rates && times.iter().all(|ns| *ns <= soon_ns)
    }

    /// Brings what a process wrote whose clock was read a little later than this one into bounds (B-6).
    pub fn mend(&mut self, now_ns: u64) {
        let soon = now_ns.saturating_add(LONGEST_NS);
        for ns in [&mut self.requests_ns, &mut self.tokens_ns, &mut self.paused_ns, &mut self.resting_ns] {
            *ns = (*ns).min(soon);
        }
        for ns in [&mut self.cut_ns, &mut self.grown_ns, &mut self.sick_since_ns] {
            *ns = (*ns).min(now_ns);
        }
        self.probing_ns = self.probing_ns.min(now_ns.saturating_add(PROBE_NS));
        self.factor = if self.factor.is_nan() { 1.0 } else { self.factor.clamp(LEAST, 1.0) };
        for number in [&mut self.mean_tokens, &mut self.tpm] {
            *number = if number.is_finite() { number.max(0.0) } else { 0.0 };
        }
    }

    /// Calls at a time of `most`, as far as the cuts go: only without rates, which say more.
    #[must_use]
    pub fn shrunk(&self, rules: &Rules, most: usize) -> usize {
        if rules.rpm.is_some() || rules.tpm.is_some() {
            return most;
        }
        #[expect(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            clippy::cast_precision_loss,
            reason = "between 1 and most"
        )]
        let left = (most as f64 * self.factor) as usize;
        left.clamp(1, most.max(1))
    }

    /// Whether it has failed so often in a row that only probes are let through (B-5).
    #[must_use]
    pub const fn is_dead(&self) -> bool {
        self.sick >= SICK
    }

    const fn revive(&mut self, by: Passed) {
        // What was sent before the failures began tells nothing of the time since.
        if by.sent_ns >= self.sick_since_ns {
            (self.sick, self.rests, self.resting_ns, self.probing_ns) = (0, 0, 0, 0);
        }
    }

    fn rest(&mut self, now_ns: u64, random: f64) {
        let longest_ns = FIRST_REST_NS.saturating_mul(1 << self.rests.min(10)).min(LONGEST_REST_NS);
        // Between half and all of it: a probe at once would be none.
        self.resting_ns = now_ns.saturating_add(rounded(real(longest_ns) * (0.5 + random / 2.0)));
        self.rests = self.rests.saturating_add(1);
        self.probing_ns = 0;
    }

    /// What is owed in tokens, as the time that they take at the rate of these rules (B-6).
    fn convert(&mut self, rules: &Rules, now_ns: u64) {
        let Some(tpm) = rules.tpm.filter(|tpm| self.tpm.to_bits() != tpm.to_bits()) else { return };
        let owed_ns = self.tokens_ns.saturating_sub(now_ns);
        if owed_ns > 0 && self.tpm > 0.0 {
            let now_owed_ns = rounded(real(owed_ns) * (self.tpm / tpm)).min(LONGEST_NS);
            self.tokens_ns = now_ns.saturating_add(now_owed_ns);
        }
        self.tpm = tpm;
    }

    fn cost_ns(&self, rate: Option<f64>, amount: f64) -> u64 {
        rate.map_or(0, |rate| rounded(MINUTE_NS * amount / (rate * PACE * self.factor)).min(LONGEST_NS))
    }
}

/// The most that a call can have used (B-2).
fn most_tokens(rules: &Rules) -> f64 {
    rules.tpm.map_or(f64::MAX, |tpm| tpm * real(LONGEST_NS) / MINUTE_NS)
}

/// Numbers of a book in a file.
pub(super) const WORDS: usize = 13;

impl Book {
    pub(super) const fn to_words(&self) -> [u64; WORDS] {
        [
            self.requests_ns,
            self.tokens_ns,
            self.mean_tokens.to_bits(),
            self.factor.to_bits(),
            self.cut_ns,
            self.grown_ns,
            self.paused_ns,
            self.sick,
            self.sick_since_ns,
            self.rests,
            self.resting_ns,
            self.probing_ns,
            self.tpm.to_bits(),
        ]
    }

    pub(super) const fn from_words(words: [u64; WORDS]) -> Self {
        Self {
            requests_ns: words[0],
            tokens_ns: words[1],
            mean_tokens: f64::from_bits(words[2]),
            factor: f64::from_bits(words[3]),
            cut_ns: words[4],
            grown_ns: words[5],
            paused_ns: words[6],
            sick: words[7],
            sick_since_ns: words[8],
            rests: words[9],
            resting_ns: words[10],
            probing_ns: words[11],
            tpm: f64::from_bits(words[12]),
        }
    }
}

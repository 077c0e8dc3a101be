//! Days of an endpoint that refuses requests, in virtual time: a table of the time and the refusals
//! that each may cost. The ideal is the time of a client that knows all refusals beforehand.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use guerdon_core::outcome::{Answer, Failure};
use guerdon_testkit::{paused, seeds};
use tokio::time::Instant;

use super::rig::{Engine, MINUTE, MS, Response, SECOND, at_once, ended, judge, refused, scored};

/// Duration of an answer.
const RUN: Duration = Duration::from_millis(50);

/// A day, by the requests that are refused.
#[derive(Clone, Copy, Debug)]
enum Day {
    /// Each of the first samples is refused once, with `Retry-After: 0.2`.
    FirstSamples(usize),
    /// The same for one of ten samples.
    TenthOfSamples,
    /// One request in ten, by their order, is refused with `Retry-After: 0.2`, or without.
    TenthOfRequests { hint: bool },
    /// One early request gets a `Retry-After` of an hour. The time leaves its sample out.
    AnHourOnce,
    /// Seven of ten requests are refused for 4 s, with 529, 503 and 429 in turn.
    Overloaded,
    /// All requests are refused for 20 s.
    AllFor20S { hint: bool },
    /// The first samples are refused once each, and all requests from 1 s to 21 s.
    FirstSamplesThenAll(usize),
    /// The same, and all requests for a minute with `Retry-After: 60`, from when these samples were
    /// answered.
    FirstSamplesThenAMinute(usize),
}

impl Day {
    /// The time that the work takes at best.
    fn ideal(self, width: usize, samples: usize) -> Duration {
        let rounds = |refusals: usize| RUN * u32::try_from((samples + refusals).div_ceil(width)).unwrap();
        let hint = 200 * MS;
        match self {
            Self::FirstSamples(first) => rounds(first) + hint,
            Self::TenthOfSamples => rounds(samples / 10) + hint,
            Self::TenthOfRequests { hint: with } => rounds(samples / 9) + if with { hint } else { Duration::ZERO },
            Self::AnHourOnce => rounds(0),
            Self::Overloaded => SECOND * 4 + rounds(0),
            Self::AllFor20S { .. } => SECOND * 20 + rounds(0),
            Self::FirstSamplesThenAll(first) => SECOND * 20 + rounds(first),
            Self::FirstSamplesThenAMinute(first) => MINUTE + rounds(first),
        }
    }

    fn endpoint(self) -> impl Fn(usize, u16) -> Response + Send + Sync + 'static {
        let (begun, count) = (Instant::now(), AtomicUsize::new(0));
        move |sample, attempt| {
            let nth = count.fetch_add(1, Ordering::Relaxed);
            let told = |hint: Duration| {
                let (_, failed) = refused(RUN, Answer::Status(429));
                (RUN, failed.map_err(|failed| Failure { retry_after: Some(hint), ..failed }))
            };
            let no_hint = |status| refused(5 * MS, Answer::Status(status));
            match self {
                Self::FirstSamples(first) if attempt == 1 && sample < first => told(200 * MS),
                Self::TenthOfSamples if attempt == 1 && sample % 10 == 7 => told(200 * MS),
                Self::TenthOfRequests { hint: true } if nth % 10 == 7 => told(200 * MS),
                Self::TenthOfRequests { hint: false } if nth % 10 == 7 => no_hint(429),
                Self::AnHourOnce if nth == 9 => told(MINUTE * 60),
                Self::AllFor20S { hint } if begun.elapsed() < SECOND * 20 => {
                    if hint {
                        told(200 * MS)
                    } else {
                        no_hint(429)
                    }
                }
                Self::FirstSamplesThenAll(_) if (SECOND..SECOND * 21).contains(&begun.elapsed()) => told(200 * MS),
                Self::FirstSamplesThenAMinute(_) if (SECOND..MINUTE).contains(&begun.elapsed()) => told(MINUTE),
                Self::FirstSamplesThenAll(first) | Self::FirstSamplesThenAMinute(first)
                    if attempt == 1 && sample < first =>
                {
                    told(200 * MS)
                }
                Self::Overloaded if begun.elapsed() < SECOND * 4 && fastrand::f64() < 0.7 => {
                    no_hint([529, 503, 429][nth % 3])
                }
                _ => scored(RUN),
            }
        }
    }
}

/// Lives through a day; returns the number of samples without a score, the time, and the number of
/// requests.
fn spend(day: Day, width: usize, samples: usize, seed: u64) -> (usize, Duration, usize) {
    fastrand::seed(seed);
    paused(async move {
        let engine = Engine::start(judge(at_once(width), 4), day.endpoint());
        let batch = engine.submit(samples);
        let (lost, mut took) = ended(&batch).await;
        if matches!(day, Day::AnHourOnce) {
            // The refused sample waits for two minutes, and the others for nothing.
            let times = |sample| batch.cell(sample, 0).unwrap().outcome.times;
            let others = (0..samples).filter(|sample| batch.cell(*sample, 0).unwrap().attempts == 1);
            took = Duration::from_nanos(others.map(|one| times(one).started_ns).max().unwrap() - batch.submitted_ns());
        }
        (lost.len(), took, engine.sent().len())
    })
}

/// A day, the calls in flight and the samples; then its bounds: the time as a multiple of the
/// ideal, and the refusals.
type Row = (Day, usize, usize, f64, usize);

const DAYS: [Row; 19] = [
    (Day::FirstSamples(64), 32, 864, 2.0, 64),
    (Day::FirstSamples(320), 32, 864, 2.0, 320),
    (Day::FirstSamples(864), 32, 864, 2.0, 864),
    (Day::FirstSamples(4), 2, 40, 2.0, 4),
    (Day::FirstSamples(16), 2, 160, 2.0, 16),
    (Day::FirstSamples(256), 128, 2560, 2.0, 256),
    (Day::FirstSamples(1000), 128, 2560, 2.0, 1000),
    (Day::TenthOfSamples, 2, 200, 1.5, 20),
    (Day::TenthOfSamples, 128, 2560, 1.5, 256),
    (Day::TenthOfRequests { hint: true }, 2, 200, 1.5, 25),
    (Day::TenthOfRequests { hint: true }, 128, 2560, 1.5, 300),
    (Day::TenthOfRequests { hint: false }, 128, 2560, 1.5, 300),
    (Day::AnHourOnce, 2, 100, 1.1, 1),
    (Day::AnHourOnce, 32, 640, 1.1, 1),
    (Day::Overloaded, 32, 640, 1.6, 100),
    (Day::AllFor20S { hint: true }, 32, 512, 1.6, 72),
    (Day::AllFor20S { hint: false }, 32, 512, 1.6, 72),
    (Day::FirstSamplesThenAll(864), 32, 2000, 1.6, 864 + 72),
    (Day::FirstSamplesThenAMinute(256), 128, 4000, 1.6, 256 + 200),
];

/// Ninety-nine of a hundred samples are scored on every day.
#[test]
fn a_day_costs_what_its_refusals_explain() {
    let mut dear = Vec::new();
    for (day, width, samples, most, most_refusals) in DAYS {
        for seed in seeds(1, 8) {
            let (lost, took, sent) = spend(day, width, samples, seed);
            let ideal = day.ideal(width, samples);
            let refusals = sent - samples;
            if lost * 100 > samples || took > ideal.mul_f64(most) || refusals > most_refusals {
                dear.push(format!(
                    "{day:?}, {width} at a time, seed {seed}: {took:?}, ideal {ideal:?}; {refusals} refusals, {lost} lost"
                ));
            }
        }
    }
    assert!(dear.is_empty(), "{dear:#?}");
}

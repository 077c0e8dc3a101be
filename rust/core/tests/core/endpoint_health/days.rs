//! Days of an endpoint that refuses requests, in virtual time: a table of the time and the refusals
//! that each may cost. The ideal is the time of a client that knows all refusals beforehand.

use std::sync::Mutex;
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
    /// The request of this number gets a `Retry-After` of an hour. The time leaves its sample out.
    AnHourOnce(usize),
    /// Seven of ten requests are refused for 4 s, with 529, 503 and 429 in turn.
    Overloaded,
    /// All requests are refused for 20 s.
    AllFor20S { hint: bool },
    /// The first samples are refused once each, and all requests from 1 s to 21 s.
    FirstSamplesThenAll(usize),
    /// The same, and all requests for a minute with `Retry-After: 60`, from when these samples were
    /// answered.
    FirstSamplesThenAMinute(usize),
    /// One request is taken after each `every`, and up to `burst` that were saved. Others are
    /// refused without a hint.
    Pace { every: Duration, burst: usize },
    /// The same each 0.1 s, from 10 s on each 0.5 s, and from 20 s on each 0.05 s.
    PaceChanges,
    /// The server answers `most` requests at a time, each after `run` seconds. It refuses others
    /// without a hint.
    Slots { most: usize, run: (f64, f64) },
    /// The same, of requests and answers that take 5 to 50 ms to arrive.
    Far { most: usize, run: (f64, f64) },
    /// The same with 16 requests of 1 to 3 s at a time, from 20 s on 4, and from 60 s on 64.
    SlotsChange,
}

/// Requests that a server answers at a time.
fn slots(since: Duration) -> usize {
    if since < SECOND * 20 {
        16
    } else if since < SECOND * 60 {
        4
    } else {
        64
    }
}

/// Time between two requests that a server takes.
fn pace(since: Duration) -> Duration {
    if since < SECOND * 10 {
        100 * MS
    } else if since < SECOND * 20 {
        500 * MS
    } else {
        50 * MS
    }
}

/// Requests that a server would take at once, and since when.
struct Bucket(f64, Instant);

impl Bucket {
    fn takes(&mut self, every: Duration, burst: usize) -> bool {
        let now = Instant::now();
        self.0 = (self.0 + (now - self.1).as_secs_f64() / every.as_secs_f64()).min(burst as f64);
        self.1 = now;
        let takes = self.0 >= 1.0;
        self.0 -= f64::from(takes);
        takes
    }
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
            Self::AnHourOnce(_) => rounds(0),
            Self::Overloaded => SECOND * 4 + rounds(0),
            Self::AllFor20S { .. } => SECOND * 20 + rounds(0),
            Self::FirstSamplesThenAll(first) => SECOND * 20 + rounds(first),
            Self::FirstSamplesThenAMinute(first) => MINUTE + rounds(first),
            Self::Pace { every, burst } => every * u32::try_from(samples - burst).unwrap() + RUN,
            Self::Slots { most, run: (shortest, longest) } | Self::Far { most, run: (shortest, longest) } => {
                Duration::from_secs_f64((shortest + longest) / 2.0 * samples as f64 / most as f64)
            }
            // 160 and 80 samples in 60 s.
            Self::SlotsChange => SECOND * 60 + SECOND * 2 * u32::try_from((samples - 240).div_ceil(64)).unwrap(),
            // 100 and 20 samples in 20 s.
            Self::PaceChanges => SECOND * 20 + 50 * MS * u32::try_from(samples - 120).unwrap() + RUN,
        }
    }

    fn endpoint(self) -> impl Fn(usize, u16) -> Response + Send + Sync + 'static {
        let (begun, count) = (Instant::now(), AtomicUsize::new(0));
        let bucket = Mutex::new(Bucket(f64::MAX, begun));
        let busy = Mutex::new(Vec::<Instant>::new());
        let is_taken = move |every, burst| bucket.lock().unwrap().takes(every, burst);
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
                Self::AnHourOnce(refused) if nth == refused => told(MINUTE * 60),
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
                Self::Pace { every, burst } if !is_taken(every, burst) => no_hint(429),
                Self::PaceChanges if !is_taken(pace(begun.elapsed()), 1) => no_hint(429),
                Self::Slots { .. } | Self::Far { .. } | Self::SlotsChange => {
                    let (most, (shortest, longest)) = match self {
                        Self::Slots { most, run } | Self::Far { most, run } => (most, run),
                        _ => (slots(begun.elapsed()), (1.0, 3.0)),
                    };
                    let (now, mut busy) = (Instant::now(), busy.lock().unwrap());
                    busy.retain(|end| *end > now);
                    if busy.len() >= most {
                        return no_hint(429);
                    }
                    let run = Duration::from_secs_f64(shortest + (longest - shortest) * fastrand::f64());
                    let way =
                        || if matches!(self, Self::Far { .. }) { MS * fastrand::u32(5..50) } else { Duration::ZERO };
                    let ends = way() + run;
                    busy.push(now + ends);
                    scored(ends + way())
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
        if matches!(day, Day::AnHourOnce(_)) {
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

const DAYS: [Row; 46] = [
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
    (Day::AnHourOnce(9), 2, 100, 1.1, 1),
    (Day::AnHourOnce(9), 32, 640, 1.1, 1),
    (Day::AnHourOnce(0), 2, 100, 1.5, 1),
    (Day::AnHourOnce(1), 2, 100, 1.5, 1),
    (Day::Overloaded, 32, 640, 1.6, 100),
    (Day::AllFor20S { hint: true }, 32, 512, 1.6, 72),
    (Day::AllFor20S { hint: false }, 32, 512, 1.6, 72),
    (Day::FirstSamplesThenAll(864), 32, 2000, 1.6, 864 + 72),
    (Day::FirstSamplesThenAMinute(256), 128, 4000, 1.6, 256 + 200),
    (Day::Pace { every: Duration::from_millis(100), burst: 1 }, 2, 200, 1.5, 202),
    (Day::Pace { every: Duration::from_millis(100), burst: 1 }, 8, 200, 1.5, 208),
    (Day::Pace { every: Duration::from_millis(100), burst: 1 }, 32, 200, 1.5, 232),
    (Day::Pace { every: Duration::from_millis(100), burst: 1 }, 128, 200, 1.5, 328),
    (Day::Pace { every: Duration::from_millis(20), burst: 1 }, 2, 400, 1.5, 402),
    (Day::Pace { every: Duration::from_millis(20), burst: 1 }, 32, 400, 1.5, 432),
    (Day::Pace { every: Duration::from_millis(20), burst: 20 }, 128, 400, 1.5, 528),
    (Day::Pace { every: SECOND, burst: 1 }, 2, 60, 1.5, 62),
    (Day::Pace { every: SECOND, burst: 1 }, 128, 60, 1.5, 188),
    (Day::Pace { every: Duration::from_millis(100), burst: 5 }, 32, 200, 1.5, 232),
    (Day::Pace { every: Duration::from_millis(100), burst: 20 }, 128, 200, 1.5, 328),
    (Day::PaceChanges, 8, 400, 1.5, 408),
    (Day::PaceChanges, 128, 400, 1.5, 528),
    (Day::Slots { most: 1, run: (5.0, 5.0) }, 64, 30, 1.7, 100),
    (Day::Slots { most: 1, run: (2.0, 8.0) }, 256, 30, 1.8, 100),
    (Day::Slots { most: 2, run: (1.0, 3.0) }, 8, 60, 1.2, 70),
    (Day::Slots { most: 3, run: (1.0, 3.0) }, 128, 60, 1.2, 128 + 20),
    (Day::Slots { most: 4, run: (10.0, 20.0) }, 256, 40, 1.2, 80),
    (Day::Slots { most: 8, run: (0.05, 0.2) }, 64, 2000, 1.2, 600),
    (Day::Slots { most: 16, run: (1.0, 3.0) }, 32, 400, 1.2, 100),
    (Day::Slots { most: 16, run: (2.0, 2.0) }, 64, 400, 1.2, 150),
    (Day::Slots { most: 64, run: (0.5, 2.0) }, 256, 2000, 1.2, 700),
    (Day::Far { most: 16, run: (1.0, 3.0) }, 32, 400, 1.2, 100),
    (Day::Far { most: 64, run: (0.5, 2.0) }, 256, 2000, 1.2, 700),
    (Day::SlotsChange, 64, 1000, 1.3, 200),
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

//! The circuit breaker against a model that knows nothing but what happened: all of it, in order.

use proptest::prelude::*;

use super::super::breaker::{
    Attempt, Breaker, BreakerState, EXCUSED, EXCUSED_UNCONNECTED, FAILURES, History, RAMP, SILENT, Signal,
};
use super::S;

const FRESH: History = History { failed_before: false, throttled_before: false, excused: 0 };

/// One request that ended.
#[derive(Clone, Copy, Debug)]
struct Event {
    attempt: Attempt,
    signal: Signal,
    at_ns: u64,
    in_flight: usize,
}

/// The breaker's rules, computed from the whole history since the last answer.
#[derive(Debug, Default)]
struct Model {
    events: Vec<Event>,
    /// When it opened, each time since it was last closed, with how many events there were.
    opened: Vec<(u64, usize)>,
    open_until_ns: u64,
    /// Trials answered since it last opened.
    trials_answered: u64,
    trials_in_flight: u64,
}

impl Model {
    fn last_answer_ns(&self) -> u64 {
        let answers = self.events.iter().filter(|event| event.signal == Signal::Answered);
        answers.map(|event| event.at_ns).max().unwrap_or(0)
    }

    /// Events since the last answer.
    fn since_answer(&self) -> &[Event] {
        let last = self.events.iter().rposition(|event| event.signal == Signal::Answered);
        &self.events[last.map_or(0, |last| last + 1)..]
    }

    fn slow(&self, event: &Event) -> bool {
        event.signal == Signal::TimedOut && event.attempt.sent_ns < self.last_answer_ns()
    }

    fn counts(&self, event: &Event) -> bool {
        match event.signal {
            Signal::NoConnection => true,
            Signal::Failed | Signal::TimedOut => !event.attempt.history.failed_before && !self.slow(event),
            Signal::Answered | Signal::Nothing => false,
        }
    }

    /// Distinct failures since the last answer; what was sent before it opened counts no more then.
    fn failures(&self, of: impl Fn(&Event) -> bool) -> usize {
        let before = self.events.len() - self.since_answer().len();
        let open_at = |number: usize| self.opened.iter().any(|(_, events)| number >= *events);
        let all = self.since_answer().iter().enumerate();
        all.filter(|(number, event)| {
            self.counts(event) && of(event) && (event.attempt.trial || !open_at(before + number))
        })
        .count()
    }

    fn record(&mut self, event: Event) -> bool {
        self.trials_in_flight = self.trials_in_flight.saturating_sub(event.attempt.trial.into());
        let slow = self.slow(&event);
        self.events.push(event);
        let open = !self.opened.is_empty();
        if event.signal == Signal::Answered {
            self.trials_answered += 1;
            if open && (!event.attempt.trial || self.trials_answered >= RAMP) {
                self.opened.clear();
            }
            if self.opened.is_empty() {
                (self.trials_answered, self.trials_in_flight) = (0, 0);
            }
            return false;
        }
        if event.signal == Signal::Nothing {
            return false;
        }
        let unconnected = event.signal == Signal::NoConnection;
        let History { failed_before, excused, .. } = event.attempt.history;
        let own = slow || (failed_before && excused >= if unconnected { EXCUSED_UNCONNECTED } else { EXCUSED });
        let failures = self.failures(|_| true);
        let opens = if open {
            let judged = event.attempt.trial && event.at_ns >= self.open_until_ns && (unconnected || !own);
            judged && (self.trials_answered == 0 || failures as u64 >= FAILURES)
        } else {
            let unconnected = self.failures(|event| event.signal == Signal::NoConnection);
            self.counts(&event)
                && (unconnected as u64 >= FAILURES || (failures as u64 >= FAILURES && failures > event.in_flight))
        };
        if opens {
            self.opened.push((event.at_ns, self.events.len()));
            // Without jitter: 0.25 s, 0.5 s and so on.
            let times = u32::try_from(self.opened.len() - 1).unwrap();
            self.open_until_ns = event.at_ns + (S / 4 * 2_u64.pow(times.min(10))).min(15 * S);
            (self.trials_answered, self.trials_in_flight) = (0, 0);
        }
        !self.opened.is_empty() && !own
    }

    fn is_silent(&self) -> bool {
        let silent = |event: &&Event| event.signal == Signal::TimedOut && !self.slow(event);
        self.since_answer().iter().filter(silent).count() as u64 >= SILENT
    }

    fn is_trial(&self, now_ns: u64) -> bool {
        now_ns >= self.open_until_ns && self.trials_in_flight < 1 << self.trials_answered
    }
}

/// Next event: a request is sent, or the one in flight with this number ends so.
#[derive(Clone, Debug)]
enum Step {
    Send(History),
    End(prop::sample::Index, Signal),
}

fn step() -> impl Strategy<Value = Step> {
    let history = (any::<bool>(), 0..4_u16).prop_map(|(failed_before, excused)| History {
        throttled_before: false,
        failed_before,
        excused: if failed_before { excused } else { 0 },
    });
    let signal = prop_oneof![
        1 => Just(Signal::Answered),
        4 => Just(Signal::Failed),
        4 => Just(Signal::NoConnection),
        4 => Just(Signal::TimedOut),
        1 => Just(Signal::Nothing),
    ];
    prop_oneof![
        history.prop_map(Step::Send),
        (any::<prop::sample::Index>(), signal).prop_map(|(at, signal)| Step::End(at, signal))
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(512))]

    #[test]
    fn it_does_what_the_model_says(steps in prop::collection::vec((0..2000_u64, step()), 1..200)) {
        let (mut breaker, mut model) = (Breaker::default(), Model::default());
        let (mut now_ns, mut in_flight) = (S, Vec::new());
        for (gap_ms, step) in steps {
            now_ns += gap_ms * 1_000_000;
            match step {
                Step::Send(history) => {
                    let state = breaker.state(now_ns);
                    prop_assert_eq!(state == BreakerState::Closed, model.opened.is_empty());
                    // Trials are given up after a minute, which the model does not know.
                    let given_up = breaker.trials > 0 && breaker.trials_until_ns <= now_ns;
                    if !model.opened.is_empty() && !given_up {
                        prop_assert_eq!(state == BreakerState::Trial, model.is_trial(now_ns), "{:?} {:?}", state, model);
                    }
                    let trial = state == BreakerState::Trial;
                    if trial {
                        if given_up { model.trials_in_flight = 0; }
                        breaker.start_trial(now_ns);
                        model.trials_in_flight += 1;
                    }
                    if matches!(state, BreakerState::Closed | BreakerState::Trial) {
                        in_flight.push(Attempt { sent_ns: now_ns, trial, history });
                    }
                }
                Step::End(_, _) if in_flight.is_empty() => {}
                Step::End(at, signal) => {
                    let attempt = in_flight.swap_remove(at.index(in_flight.len()));
                    let event = Event { attempt, signal, at_ns: now_ns, in_flight: in_flight.len() };
                    let excused = breaker.record(attempt, signal, now_ns, in_flight.len(), 1.0);
                    prop_assert_eq!(excused, model.record(event), "{:?} {:?}", event, model);
                    prop_assert_eq!(breaker.is_open(), !model.opened.is_empty(), "{:?} {:?}", event, model);
                    prop_assert_eq!(breaker.is_silent(), model.is_silent());
                }
            }
        }
    }
}

fn sent(history: History) -> Attempt {
    Attempt { sent_ns: S, trial: false, history }
}

#[test]
fn one_call_that_fails_again_and_again_opens_nothing() {
    let mut breaker = Breaker::default();
    for attempt in 0..100 {
        let history = History { failed_before: attempt > 0, ..History::default() };
        assert!(!breaker.record(sent(history), Signal::Failed, S + attempt, 0, 0.5), "it is no excuse");
    }
    assert!(!breaker.is_open());
}

#[test]
fn more_must_fail_than_are_in_flight() {
    let mut breaker = Breaker::default();
    for at in 0..100 {
        breaker.record(sent(FRESH), Signal::Failed, S + at, 100, 0.5);
    }
    assert!(!breaker.is_open(), "a hundred others may be answered yet");
    breaker.record(sent(FRESH), Signal::Failed, 2 * S, 100, 0.5);
    assert!(breaker.is_open());
    // No call can be to blame if there is no connection.
    let (mut breaker, again) = (Breaker::default(), History { failed_before: true, ..History::default() });
    for at in 0..FAILURES {
        assert!(!breaker.is_open());
        breaker.record(sent(again), Signal::NoConnection, S + at, 100, 0.5);
    }
    assert!(breaker.is_open());
}

#[test]
fn any_answer_is_a_sign_of_life_whenever_its_request_was_sent() {
    let mut breaker = Breaker::default();
    for at in 0..FAILURES {
        breaker.record(sent(FRESH), Signal::Failed, 2 * S + at, 0, 0.5);
    }
    assert!(breaker.is_open());
    breaker.record(sent(FRESH), Signal::Answered, 2 * S + 9, 0, 0.5); // sent before all of them
    assert_eq!(breaker.state(2 * S + 9), BreakerState::Closed);
}

#[test]
fn a_slow_call_says_nothing_where_others_were_answered() {
    let mut breaker = Breaker::default();
    breaker.record(sent(FRESH), Signal::Answered, 20 * S, 8, 0.5);
    for at in 0..8 {
        assert!(!breaker.record(sent(FRESH), Signal::TimedOut, 31 * S + at, 0, 0.5));
    }
    assert!(!breaker.is_open() && !breaker.is_silent());
    // Sent since, and no answer to anybody: it hangs.
    for at in 0..FAILURES {
        assert_eq!(breaker.is_silent(), at >= SILENT);
        let attempt = Attempt { sent_ns: 21 * S, ..sent(FRESH) };
        breaker.record(attempt, Signal::TimedOut, 51 * S + at, 0, 0.5);
    }
    assert!(breaker.is_open());
}

#[test]
fn excuses_are_bounded() {
    let mut breaker = Breaker::default();
    for at in 0..FAILURES {
        breaker.record(sent(FRESH), Signal::Failed, S + at, 0, 1.0);
    }
    let mut now_ns = 2 * S;
    for excused in 0..EXCUSED + 3 {
        breaker.start_trial(now_ns);
        let history = History { failed_before: true, excused, ..History::default() };
        let attempt = Attempt { sent_ns: now_ns, trial: true, history };
        let is_excused = breaker.record(attempt, Signal::Failed, now_ns, 0, 1.0);
        assert_eq!(is_excused, excused < EXCUSED);
        // Its own failure says nothing: the place is another's at once.
        assert_eq!(breaker.state(now_ns) == BreakerState::Trial, !is_excused);
        now_ns = breaker.open_until_ns.max(now_ns);
    }
}

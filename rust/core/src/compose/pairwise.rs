//! Samples of a group compared in pairs.
//!
//! - A pair counts once all of its orders have an answer. Two orders that contradict each other
//!   are a tie, counted as a flip: a judge that prefers a place prefers neither sample.
//! - One order that fails says that the pair can't count, and the other is given up.
//! - A sample has a score only with at least half of the comparisons that were meant for it; the
//!   others fail and say how many there were.

use std::collections::{BTreeMap, BTreeSet};

use serde::Deserialize;

use crate::compose::bradley_terry::{ComparedPair, scores, strengths, win_rates};
use crate::compose::schedule::Schedule;
use crate::compose::step::{CompositeResult, NextStep, in_lists, items, listed};
use crate::function::FunctionId;
use crate::member_call::{MemberCall, MemberEnd};
use crate::outcome::{Cell, Failure, Status};
use crate::report::{NamedExtra, Report};

/// Scores computed from comparisons.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum PairwiseScore {
    BradleyTerry,
    WinRate,
}

/// Rule for comparing the samples of a group.
#[derive(Clone, Copy, Debug)]
pub struct Pairwise {
    /// Compares two samples: 1 is for the first, 0 for the second, 0.5 for a tie.
    pub function: FunctionId,
    pub schedule: Schedule,
    pub score: PairwiseScore,
    /// Each pair is compared in both orders.
    pub both_orders: bool,
}

/// A call on one order of a pair.
#[derive(Default)]
enum Order {
    /// Not called, or given up.
    #[default]
    Unasked,
    Open,
    /// Preference for the sample that is shown first, from 0 to 1.
    Preference(f64),
    Failed(String),
}

#[derive(Default)]
struct Pair {
    first: usize,
    second: usize,
    there: Order,
    back: Order,
    /// Named values of its calls, one list for each order.
    extra: [Vec<NamedExtra>; 2],
    /// Items of its calls' records, one for each order.
    records: [Option<String>; 2],
}

/// A call that was begun. Samples are counted from the group's first.
pub(super) struct PairwiseCall {
    first: usize,
    size: usize,
    rounds_left: usize,
    /// Pairs of all rounds, the smaller number first.
    pairs: BTreeMap<(usize, usize), Pair>,
    /// Pairs that still wait for an answer.
    open_pairs: usize,
    /// Start of the first member call that ran.
    pub(super) started_ns: Option<u64>,
}

impl Pairwise {
    /// The most samples of a group.
    pub(super) const MOST_SAMPLES: usize = 1 << 16;

    pub(super) fn begin(&self, first: usize, size: usize) -> (PairwiseCall, NextStep) {
        let rounds_left = if size > Self::MOST_SAMPLES { 0 } else { self.schedule.rounds(size) };
        let mut call =
            PairwiseCall { first, size, rounds_left, pairs: BTreeMap::new(), open_pairs: 0, started_ns: None };
        let step = self.next_round(&mut call);
        (call, step)
    }

    fn next_round(&self, call: &mut PairwiseCall) -> NextStep {
        let mut calls = Vec::new();
        while calls.is_empty() && call.rounds_left > 0 {
            call.rounds_left -= 1;
            let met: BTreeSet<(usize, usize)> = call.pairs.keys().copied().collect();
            for (first, second) in self.schedule.round(&call.won(), &met) {
                calls.push(call.member_call(self.function, first, second));
                let mut pair = Pair { first, second, there: Order::Open, ..Pair::default() };
                if self.both_orders {
                    calls.push(call.member_call(self.function, second, first));
                    pair.back = Order::Open;
                }
                call.pairs.insert((first.min(second), first.max(second)), pair);
                call.open_pairs += 1;
            }
        }
        if calls.is_empty() { NextStep::end() } else { NextStep::call(calls) }
    }

    /// Takes the result of a member call.
    pub(super) fn ended(&self, call: &mut PairwiseCall, end: MemberEnd) -> NextStep {
        let shown_first = end.sample.saturating_sub(call.first);
        let other = (shown_first + end.slot + 1) % call.size.max(1);
        let Some(pair) = call.pairs.get_mut(&(shown_first.min(other), shown_first.max(other))) else {
            return NextStep::wait();
        };
        let there = shown_first == pair.first;
        let order = if there { &mut pair.there } else { &mut pair.back };
        if !matches!(order, Order::Open) {
            return NextStep::wait(); // it has ended before
        }
        let samples = (call.first + shown_first, call.first + other);
        let failed = |why| Order::Failed(format!("samples {} and {}: {why}", samples.0, samples.1));
        *order = preference(&end).map_or_else(failed, Order::Preference);
        let failed = matches!(order, Order::Failed(_));
        pair.extra[usize::from(!there)] = end.extra;
        pair.records[usize::from(!there)] = end.record.as_deref().and_then(items);
        let started_ns = Some(end.outcome.times.started_ns).filter(|ns| *ns != 0);
        call.started_ns = call.started_ns.into_iter().chain(started_ns).min();
        let other_order = if there { &mut pair.back } else { &mut pair.there };
        let waits = matches!(other_order, Order::Open);
        if waits && !failed {
            return NextStep::wait();
        }
        let mut give_up = Vec::new();
        if waits {
            *other_order = Order::Unasked;
            give_up.push(call.member_call(self.function, other, shown_first));
        }
        call.open_pairs -= 1;
        let next = if call.open_pairs == 0 { self.next_round(call) } else { NextStep::wait() };
        NextStep { give_up, ..next }
    }

    /// The scores of a group; `late`: its time is up.
    pub(super) fn result(&self, call: &PairwiseCall, late: bool) -> CompositeResult<Vec<Cell>> {
        if call.size > Self::MOST_SAMPLES {
            let why = format!("groups of at most {} samples are compared in pairs", Self::MOST_SAMPLES);
            return (Err(Failure::error(why)), Report::default(), None);
        }
        let comparisons = call.comparisons();
        let counts = call.count(|pair| pair.comparison().is_some());
        let mut report = Report::default();
        let kept = call.pairs.values().flat_map(|pair| pair.extra.iter().flatten());
        for (name, value) in in_lists(kept) {
            report.add(0, name, value); // a group has one list
        }
        let ties = call.count(|pair| pair.comparison().is_some_and(|(share, _)| share == 0.5));
        let flips = call.count(|pair| pair.comparison().is_some_and(|(_, flipped)| flipped));
        for sample in 0..call.size {
            for (name, counts) in [("comparisons", &counts), ("ties", &ties), ("flips", &flips)] {
                report.add(sample, name, counts[sample] as f64);
            }
        }
        let cells = if call.size < 2 {
            vec![Cell::Abstained; call.size] // nothing to compare it with
        } else {
            call.cells(self.score, &comparisons, &counts, late)
        };
        let records: Vec<String> =
            call.pairs.values().flat_map(|pair| pair.records.iter().flatten().cloned()).collect();
        (Ok(cells), report, listed(&records))
    }
}

impl PairwiseCall {
    /// The member calls that are under way.
    pub(super) fn open(&self, function: FunctionId) -> Vec<MemberCall> {
        let of = |pair: &Pair| {
            let orders = [(&pair.there, pair.first, pair.second), (&pair.back, pair.second, pair.first)];
            orders.map(|(order, one, other)| matches!(order, Order::Open).then_some((one, other)))
        };
        let open = self.pairs.values().flat_map(of).flatten();
        open.map(|(one, other)| self.member_call(function, one, other)).collect()
    }

    fn member_call(&self, function: FunctionId, one: usize, other: usize) -> MemberCall {
        // `Pairs` finds the second sample by it.
        let slot = (other + self.size - one - 1) % self.size;
        MemberCall { function, sample: self.first + one, slot }
    }

    fn comparisons(&self) -> Vec<ComparedPair> {
        let of = |pair: &Pair| {
            let (share, _) = pair.comparison()?;
            Some(ComparedPair { first: pair.first, second: pair.second, share })
        };
        self.pairs.values().filter_map(of).collect()
    }

    /// Comparisons that each sample has won.
    fn won(&self) -> Vec<f64> {
        let mut won = vec![0.0; self.size];
        for ComparedPair { first, second, share } in self.comparisons() {
            won[first] += share;
            won[second] += 1.0 - share;
        }
        won
    }

    /// Number of these pairs, by sample.
    fn count(&self, such: impl Fn(&Pair) -> bool) -> Vec<usize> {
        let mut counts = vec![0; self.size];
        for pair in self.pairs.values().filter(|pair| such(pair)) {
            counts[pair.first] += 1;
            counts[pair.second] += 1;
        }
        counts
    }

    fn cells(&self, score: PairwiseScore, comparisons: &[ComparedPair], counts: &[usize], late: bool) -> Vec<Cell> {
        let meant = self.count(|_| true);
        let scored: Vec<Option<f64>> = match score {
            PairwiseScore::WinRate => win_rates(self.size, comparisons),
            PairwiseScore::BradleyTerry => scores(&strengths(self.size, comparisons)).into_iter().map(Some).collect(),
        };
        let last_error = self.pairs.values().rev().find_map(|pair| match (&pair.there, &pair.back) {
            (Order::Failed(why), _) | (_, Order::Failed(why)) => Some(why),
            _ => None,
        });
        let cell = |(sample, score): (usize, Option<f64>)| match score {
            Some(score) if counts[sample] > 0 && 2 * counts[sample] >= meant[sample] => Cell::Value(score),
            _ => {
                let why = match last_error {
                    _ if late => "; the time was up".to_owned(),
                    Some(error) => format!("; the last that failed: {error}"),
                    None => String::new(),
                };
                let (count, meant) = (counts[sample], meant[sample]);
                Cell::Invalid(format!("{count} of {meant} comparisons, too few for a score{why}"))
            }
        };
        scored.into_iter().enumerate().map(cell).collect()
    }
}

impl Pair {
    /// The share of the first, and whether its orders contradict each other, once it counts.
    const fn comparison(&self) -> Option<(f64, bool)> {
        match (&self.there, &self.back) {
            (Order::Preference(share), Order::Unasked) => Some((*share, false)),
            (Order::Preference(there), Order::Preference(back)) => Some(both(*there, *back)),
            _ => None,
        }
    }
}

/// The share of the first of a pair, out of the answers about it as the first and as the second one
/// shown.
const fn both(there: f64, back: f64) -> (f64, bool) {
    let flipped = (there > 0.5 && back > 0.5) || (there < 0.5 && back < 0.5);
    (if flipped { 0.5 } else { f64::midpoint(there, 1.0 - back) }, flipped)
}

/// Scores of a comparison.
const MEANING: &str = "1 is for the first, 0 for the second, 0.5 for a tie";

/// Returns the preference for the sample that is shown first, from 0 to 1.
fn preference(end: &MemberEnd) -> Result<f64, String> {
    match end.outcome.status {
        Status::Ok if (0.0..=1.0).contains(&end.outcome.value) => Ok(end.outcome.value),
        Status::Ok => {
            let value = end.outcome.value;
            Err(format!("{value} is not a preference: {MEANING}"))
        }
        Status::Abstained | Status::Skipped => Err("the comparison abstained".to_owned()),
        Status::Timeout | Status::Error | Status::Crashed | Status::Cancelled => {
            let why = end.reason().unwrap_or_default();
            Err(if why.starts_with("InvalidValue: ") { format!("{why}; of a comparison {MEANING}") } else { why })
        }
    }
}

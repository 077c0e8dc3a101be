//! Samples of a group compared in pairs.
//!
//! - A pair counts once both of its orders are answered; where they contradict each other it is a
//!   tie, and counted as a flip. A judge that prefers a place therefore prefers neither sample.
//! - A sample has a score only with at least half of the comparisons that were meant for
//!   it; the others fail and say how many there were.
//! - Before the group's time is up the comparisons that are there are made into scores.

use std::collections::BTreeSet;

use futures_util::StreamExt;
use futures_util::stream::FuturesUnordered;
use guerdon_core::outcome::{Cell, Failure};
use guerdon_core::report::Report;

use crate::compound::ask::{Asker, RequestSubject, Sample};
use crate::compound::bradley_terry::{Comparison, scores, strengths, win_rates};
use crate::compound::function::{Pairwise, PairwiseScore};
use crate::compound::unit::Cells;
use crate::response::Scores;

/// Time before its end at which a group's comparisons are made into scores.
const BEFORE_END_NS: u64 = 250_000_000;

/// Results of a group so far.
struct GroupScores {
    comparisons: Vec<Comparison>,
    /// By sample: comparisons that were meant for it, and pairs that flipped.
    meant: Vec<usize>,
    flips: Vec<usize>,
    met: BTreeSet<(usize, usize)>,
    won: Vec<f64>,
    last_error: Option<String>,
}

pub async fn ask(asker: &Asker<'_>, rules: Pairwise) -> (Result<Cells, Failure>, Report) {
    let samples = &asker.unit.samples;
    let mut standing = GroupScores::new(samples.len());
    if samples.len() < 2 {
        // Nothing to compare it with.
        return (Ok(samples.iter().map(|_| Cell::Abstained).collect()), standing.report());
    }
    let clock = asker.queue.clock;
    let ends_ns = asker.unit.batch.ends_ns(asker.unit.key.1, asker.queue.function);
    let late = {
        let compare = compare(asker, rules, samples, &mut standing);
        match ends_ns {
            None => {
                compare.await;
                false
            }
            Some(ends_ns) => {
                let left_ns = ends_ns.saturating_sub(clock.now_ns());
                // If the time is short, a part of it: most of it is for comparisons.
                let until_ns = ends_ns.saturating_sub(BEFORE_END_NS.min(left_ns / 10));
                tokio::select! {
                    () = compare => false,
                    () = clock.sleep_until_ns(until_ns) => true,
                }
            }
        }
    };
    (Ok(standing.cells(rules.score, late)), standing.report())
}

/// Plays all rounds.
async fn compare(asker: &Asker<'_>, rules: Pairwise, samples: &[Sample], standing: &mut GroupScores) {
    for _ in 0..rules.schedule.rounds(samples.len()) {
        let pairs = rules.schedule.round(&standing.won, &standing.met);
        let mut under_way = FuturesUnordered::new();
        for (one, other) in pairs {
            standing.meant[one] += 1;
            standing.meant[other] += 1;
            standing.met.insert((one.min(other), one.max(other)));
            under_way.push(async move { (one, other, meet(asker, rules, samples[one], samples[other]).await) });
        }
        while let Some((one, other, met)) = under_way.next().await {
            standing.enter(one, other, met);
        }
    }
}

/// Compares a pair: the share of the first, and whether the judge contradicted itself.
async fn meet(asker: &Asker<'_>, rules: Pairwise, one: Sample, other: Sample) -> Result<(f64, bool), String> {
    let there = async { preference(&asker.ask(0, RequestSubject { first: one, second: other }).await) };
    if !rules.both_orders {
        return there.await.map(|share| (share, false));
    }
    let back = async { preference(&asker.ask(0, RequestSubject { first: other, second: one }).await) };
    // One order that failed says that the pair can't count: the other is cancelled.
    let (there, back) = futures_util::future::try_join(there, back).await?;
    Ok(both(there, back))
}

/// The share of the first of a pair, out of the answers about it as the first and as the second one
/// shown.
fn both(there: f64, back: f64) -> (f64, bool) {
    let flipped = (there > 0.5 && back > 0.5) || (there < 0.5 && back < 0.5);
    (if flipped { 0.5 } else { f64::midpoint(there, 1.0 - back) }, flipped)
}

/// Returns the answer's preference for the sample that is shown first, from 0 to 1.
fn preference(answer: &Result<Scores, Failure>) -> Result<f64, String> {
    let scores = answer.as_ref().map_err(|failure| failure.reason.clone())?;
    match scores.cells.first() {
        Some(Cell::Value(share)) if (0.0..=1.0).contains(share) => Ok(*share),
        Some(Cell::Value(other)) => {
            Err(format!("the judge's {other} is no preference: 1 is for the first, 0 for the second, 0.5 for a tie"))
        }
        Some(Cell::Abstained) => Err("the judge abstained".to_owned()),
        Some(Cell::Invalid(why)) => Err(why.clone()),
        Some(Cell::Reported(reported)) => Err(reported.1.clone()),
        None => Err("an answer without a score".to_owned()),
    }
}

impl GroupScores {
    fn new(members: usize) -> Self {
        Self {
            comparisons: Vec::new(),
            meant: vec![0; members],
            flips: vec![0; members],
            met: BTreeSet::new(),
            won: vec![0.0; members],
            last_error: None,
        }
    }

    fn enter(&mut self, first: usize, second: usize, met: Result<(f64, bool), String>) {
        match met {
            Ok((share, flipped)) => {
                self.comparisons.push(Comparison { first, second, share });
                self.won[first] += share;
                self.won[second] += 1.0 - share;
                for member in [first, second] {
                    self.flips[member] += usize::from(flipped);
                }
            }
            Err(why) => self.last_error = Some(why),
        }
    }

    /// Comparisons of each sample.
    fn counts(&self) -> Vec<usize> {
        let of = |member| self.comparisons.iter().filter(|one| one.first == member || one.second == member).count();
        (0..self.meant.len()).map(of).collect()
    }

    fn cells(&self, score: PairwiseScore, late: bool) -> Cells {
        let (members, counts) = (self.meant.len(), self.counts());
        let scored: Vec<Option<f64>> = match score {
            PairwiseScore::WinRate => win_rates(members, &self.comparisons),
            PairwiseScore::BradleyTerry => {
                scores(&strengths(members, &self.comparisons)).into_iter().map(Some).collect()
            }
        };
        let cell = |(member, score): (usize, Option<f64>)| match score {
            Some(score) if counts[member] > 0 && 2 * counts[member] >= self.meant[member] => Cell::Value(score),
            _ => {
                let why = match &self.last_error {
                    _ if late => "; the time was up".to_owned(),
                    Some(error) => format!("; the last that failed: {error}"),
                    None => String::new(),
                };
                let (count, meant) = (counts[member], self.meant[member]);
                Cell::Invalid(format!("{count} of {meant} comparisons, too few for a score{why}"))
            }
        };
        scored.into_iter().enumerate().map(cell).collect()
    }
    /// Returns the counts behind the scores.
    fn report(&self) -> Report {
        let mut report = Report::default();
        let counts = self.counts();
        for (member, count) in counts.into_iter().enumerate() {
            let of = |one: &&Comparison| one.first == member || one.second == member;
            let ties = self.comparisons.iter().filter(of).filter(|one| one.share == 0.5).count();
            for (name, count) in [("comparisons", count), ("ties", ties), ("flips", self.flips[member])] {
                report.add(member, name, count as f64);
            }
        }
        report
    }
}

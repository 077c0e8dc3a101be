//! Run and queue times of one function in one batch: nearest-rank percentiles over its calls.
//! Gathered samples waited separately, so queue times are by sample and run times by call.

use crate::batch::Batch;
use crate::function::FunctionId;
use crate::outcome::Times;

/// Times in nanoseconds; all zero when no call started.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Timings {
    pub run_p50: u64,
    pub run_p90: u64,
    pub run_p99: u64,
    pub run_max: u64,
    pub run_total: u64,
    pub queue_p50: u64,
    pub queue_p99: u64,
    pub queue_max: u64,
}

impl Timings {
    /// The times of a function's completed calls in `batch`.
    #[must_use]
    pub fn of(batch: &Batch, function: FunctionId) -> Self {
        let span = batch.functions()[function].span(batch.samples(), batch.group_size()).max(1);
        let (mut runs, mut queues) = (Vec::new(), Vec::new());
        for first in (0..batch.samples()).step_by(span) {
            let times = batch.cell(first, function).map(|cell| cell.outcome.times);
            if let Some(Times { started_ns, run_ns }) = times.filter(|times| times.started_ns != 0) {
                runs.push(run_ns);
                queues.push(started_ns.saturating_sub(batch.ready_ns(first, function)));
            }
        }
        if batch.functions()[function].gather.is_some() {
            runs = batch.gathered_of(function).iter().map(|times| times.run_ns).collect();
        }
        runs.sort_unstable();
        queues.sort_unstable();
        Self {
            run_p50: percentile(&runs, 50),
            run_p90: percentile(&runs, 90),
            run_p99: percentile(&runs, 99),
            run_max: percentile(&runs, 100),
            run_total: total(&runs),
            queue_p50: percentile(&queues, 50),
            queue_p99: percentile(&queues, 99),
            queue_max: percentile(&queues, 100),
        }
    }
}

/// Returns the sum of times; it saturates, because a worker may report any number.
fn total(times: &[u64]) -> u64 {
    times.iter().fold(0, |sum, time| sum.saturating_add(*time))
}

/// Returns the smallest value that is at least as large as `percent` % of all (nearest rank).
fn percentile(sorted: &[u64], percent: usize) -> u64 {
    let rank = (sorted.len() * percent).div_ceil(100);
    sorted.get(rank.saturating_sub(1)).copied().unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::{percentile, total};

    #[test]
    fn a_sum_of_nonsense_is_no_overflow() {
        assert_eq!(total(&[1, 2, 3]), 6);
        assert_eq!(total(&[u64::MAX - 1, u64::MAX]), u64::MAX);
    }

    #[test]
    fn percentiles_are_nearest_rank() {
        let hundred: Vec<u64> = (1..=100).collect();
        assert_eq!([50, 90, 99, 100].map(|p| percentile(&hundred, p)), [50, 90, 99, 100]);
        assert_eq!([50, 99].map(|p| percentile(&[4, 9], p)), [4, 9]);
        assert_eq!(percentile(&[], 50), 0);
    }
}

//! A histogram of times: exact counts at the bounds for Prometheus, and buckets of an eighth of an
//! octave for percentiles. The highest bits of a time are the number of its bucket, which is faster
//! than one search in finer bounds for both.

/// The bounds `le` for Prometheus, in nanoseconds: 10 us to 1000 s.
pub const BOUNDS: [u64; 25] = bounds();
const PARTS_LOG2: u32 = 3;
/// Times below 2^10 ns are in the first bucket, and times from 2^41 ns on in the last.
const FIRST: u32 = 10;
const LAST: u32 = 40;
const BUCKETS: usize = ((LAST - FIRST + 1) << PARTS_LOG2) as usize + 2;

const fn bounds() -> [u64; 25] {
    let mut bounds = [0; 25];
    let (mut at, mut decade) = (0, 10_000);
    while at < bounds.len() {
        bounds[at] = decade * [1, 2, 5][at % 3];
        at += 1;
        if at % 3 == 0 {
            decade *= 10;
        }
    }
    bounds
}

/// Returns the bucket of a time. A bucket includes its upper end.
const fn bucket(ns: u64) -> usize {
    let below = ns.saturating_sub(1);
    if below < 1 << FIRST {
        return 0;
    }
    let octave = 63 - below.leading_zeros();
    if octave > LAST {
        return BUCKETS - 1;
    }
    let part = (below >> (octave - PARTS_LOG2)) & ((1 << PARTS_LOG2) - 1);
    1 + (((octave - FIRST) << PARTS_LOG2) as usize) + part as usize
}

/// Returns the upper end of a bucket.
const fn end(bucket: usize) -> u64 {
    if bucket == 0 {
        return 1 << FIRST;
    }
    if bucket == BUCKETS - 1 {
        return u64::MAX;
    }
    let (octave, part) = ((bucket - 1) >> PARTS_LOG2, (bucket - 1) & ((1 << PARTS_LOG2) - 1));
    let octave = octave as u32 + FIRST;
    (1 << octave) + ((part as u64 + 1) << (octave - PARTS_LOG2))
}

/// See the module.
#[derive(Clone, Debug)]
pub struct Histogram {
    buckets: Box<[u64]>,
    /// Counts of the times between each of `BOUNDS` and the one before.
    at_bounds: [u64; BOUNDS.len()],
    count: u64,
    sum_ns: u64,
    max_ns: u64,
}

impl Default for Histogram {
    fn default() -> Self {
        Self { buckets: vec![0; BUCKETS].into(), at_bounds: [0; BOUNDS.len()], count: 0, sum_ns: 0, max_ns: 0 }
    }
}

impl Histogram {
    #[inline]
    pub fn add(&mut self, ns: u64) {
        self.buckets[bucket(ns)] += 1;
        if let Some(count) = self.at_bounds.get_mut(BOUNDS.partition_point(|bound| *bound < ns)) {
            *count += 1;
        }
        self.count += 1;
        self.sum_ns = self.sum_ns.saturating_add(ns);
        self.max_ns = self.max_ns.max(ns);
    }

    pub fn merge(&mut self, other: &Self) {
        self.buckets.iter_mut().zip(&other.buckets).for_each(|(mine, more)| *mine += more);
        self.at_bounds.iter_mut().zip(other.at_bounds).for_each(|(mine, more)| *mine += more);
        self.count += other.count;
        self.sum_ns = self.sum_ns.saturating_add(other.sum_ns);
        self.max_ns = self.max_ns.max(other.max_ns);
    }

    #[must_use]
    pub const fn count(&self) -> u64 {
        self.count
    }

    #[must_use]
    pub const fn sum_ns(&self) -> u64 {
        self.sum_ns
    }

    /// Returns the number of times up to each of `BOUNDS`.
    #[must_use]
    pub fn cumulative(&self) -> [u64; BOUNDS.len()] {
        let mut seen = 0;
        self.at_bounds.map(|count| {
            seen += count;
            seen
        })
    }

    /// Returns a percentile, with an error of at most an eighth and never above the longest time;
    /// `None` without any time.
    #[must_use]
    pub fn percentile_ns(&self, percent: u64) -> Option<u64> {
        let rank = (self.count * percent).div_ceil(100).max(1);
        let (mut seen, mut start) = (0, 0);
        for (bucket, count) in self.buckets.iter().enumerate() {
            let end = end(bucket);
            if *count > 0 && seen + count >= rank {
                // The last bucket has no end.
                let width = if end == u64::MAX { 0 } else { end - start };
                let part = u128::from(width) * u128::from(rank - seen) / u128::from(*count);
                return Some((start + u64::try_from(part).unwrap_or(0)).min(self.max_ns));
            }
            seen += count;
            start = end;
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn counts_at_the_bounds_are_exact(times in proptest::collection::vec(0..u64::MAX >> 20, 0..200)) {
            let mut histogram = Histogram::default();
            times.iter().for_each(|ns| histogram.add(*ns));
            let expected = BOUNDS.map(|bound| times.iter().filter(|ns| **ns <= bound).count() as u64);
            prop_assert_eq!(histogram.cumulative(), expected);
            prop_assert_eq!(histogram.count(), times.len() as u64);
            prop_assert_eq!(histogram.sum_ns(), times.iter().sum::<u64>());
        }

        #[test]
        fn percentiles_are_right_to_an_eighth(mut times in proptest::collection::vec(2_000..1_u64 << 40, 1..200)) {
            let mut histogram = Histogram::default();
            times.iter().for_each(|ns| histogram.add(*ns));
            times.sort_unstable();
            for percent in [1, 50, 90, 99, 100] {
                let exact = times[(times.len() as u64 * percent).div_ceil(100).max(1) as usize - 1];
                let found = histogram.percentile_ns(percent).unwrap();
                prop_assert!(found.abs_diff(exact) <= exact / 8 + 1, "{} for {}", found, exact);
                prop_assert!(found <= times[times.len() - 1]);
            }
        }
    }

    #[test]
    fn a_time_at_a_bound_is_not_above_it() {
        for (index, bound) in BOUNDS.into_iter().enumerate() {
            let mut histogram = Histogram::default();
            histogram.add(bound);
            histogram.add(bound + 1);
            assert_eq!(histogram.cumulative()[index], 1);
        }
        assert_eq!(BOUNDS[0], 10_000);
        assert_eq!(BOUNDS[24], 1_000_000_000_000);
    }

    #[test]
    fn the_ends_of_buckets_rise() {
        assert!((1..BUCKETS).all(|one| end(one - 1) < end(one)));
        assert_eq!(Histogram::default().percentile_ns(50), None);
    }
}

//! Records of one function's calls, found by sample.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;

/// Record of one call (`log_extra`, `log_metric`, the fields of a dict), opaque to the core.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Record {
    /// First sample of the call.
    pub first: usize,
    /// All samples of a call on gathered samples, in the order of the call.
    pub gathered: Vec<usize>,
    pub json: Vec<u8>,
}

#[derive(Default)]
pub(super) struct Records {
    /// Records by the first samples of the calls.
    by_first: BTreeMap<usize, Vec<Record>>,
    /// Samples that were in calls on gathered samples.
    gathered: BTreeSet<usize>,
}

impl Records {
    pub(super) fn push(&mut self, record: Record) {
        self.gathered.extend(&record.gathered);
        self.by_first.entry(record.first).or_default().push(record);
    }

    /// Takes the record of the call that begins with this sample.
    pub(super) fn take(&mut self, first: usize) -> Option<Vec<u8>> {
        let records = self.by_first.get_mut(&first)?;
        let record = records.pop()?;
        if records.is_empty() {
            self.by_first.remove(&first);
        }
        Some(record.json)
    }

    /// Returns the record of the call of this sample alone.
    pub(super) fn of(&self, sample: usize) -> Option<&[u8]> {
        let records = self.by_first.get(&sample)?;
        records.iter().find(|record| record.gathered.is_empty()).map(|record| &*record.json)
    }

    /// Returns whether a call on several samples recorded something for this one.
    pub(super) fn is_of_several(&self, sample: usize) -> bool {
        self.gathered.contains(&sample)
    }

    /// Returns the records of calls on any of these samples, in sample order; a call on consecutive
    /// samples covers `covers` of them.
    pub(super) fn on(&self, samples: &Range<usize>, covers: usize) -> Vec<Record> {
        let near = samples.start.saturating_sub(covers - 1)..samples.end;
        // Records of gathered samples may begin anywhere.
        let range = if self.gathered.is_empty() { near } else { 0..usize::MAX };
        let touches = |record: &&Record| {
            let whole = record.first < samples.end && record.first + covers > samples.start;
            whole || record.gathered.iter().any(|sample| samples.contains(sample))
        };
        self.by_first.range(range).flat_map(|(_, records)| records).filter(touches).cloned().collect()
    }

    /// Returns all records, in sample order.
    pub(super) fn all(&self) -> Vec<Record> {
        self.by_first.values().flatten().cloned().collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::{Duration, Instant};

    fn record(first: usize, gathered: &[usize]) -> Record {
        Record { first, gathered: gathered.to_vec(), json: first.to_le_bytes().to_vec() }
    }

    #[test]
    fn a_record_among_many_is_found_without_a_search() {
        const MANY: usize = 200_000;
        let began = Instant::now();
        let mut records = Records::default();
        for first in (0..MANY).rev() {
            records.push(record(first, &[]));
            assert_eq!(records.of(first), Some(&first.to_le_bytes()[..]));
            assert!(!records.is_of_several(first));
            assert_eq!(records.on(&(first..first + 1), 1).len(), 1);
        }
        assert!(records.all().is_sorted_by_key(|record| record.first));
        assert!((0..MANY).all(|first| records.take(first).is_some()));
        // One search a sample would take minutes.
        assert!(began.elapsed() < Duration::from_secs(30), "{:?}", began.elapsed());
    }

    #[test]
    fn records_of_gathered_samples_are_found_by_each_of_them() {
        let mut records = Records::default();
        records.push(record(7, &[7, 2, 30]));
        records.push(record(2, &[]));
        records.push(record(40, &[]));
        let firsts = |samples| records.on(&samples, 4).iter().map(|record| record.first).collect::<Vec<_>>();
        assert_eq!(
            (firsts(29..31), firsts(2..3), firsts(41..42), firsts(50..60)),
            (vec![7], vec![2, 7], vec![40], vec![])
        );
        assert!(records.is_of_several(2) && !records.is_of_several(40));
        assert_eq!(records.of(2), Some(&2_usize.to_le_bytes()[..]));
        assert_eq!(records.of(7), None);
    }
}

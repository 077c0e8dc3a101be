//! Decides cells that wait for outcomes and values.

use std::ops::Range;

use crate::batch::Batch;
use crate::function::FunctionId;

impl Batch {
    pub(crate) const fn has_conditions(&self) -> bool {
        self.dependents.is_some()
    }

    /// Records that cells of a function have outcomes, and adds the cells that can be decided now.
    pub(super) fn bring_outcomes(
        &self,
        function: FunctionId,
        samples: Range<usize>,
        decided: &mut Vec<(FunctionId, usize)>,
    ) {
        let Some(all) = &self.dependents else { return };
        for one in all.of(function) {
            decided.extend(samples.clone().filter(|sample| all.brings(*sample, *one)).map(|sample| (*one, sample)));
        }
    }

    /// Records that samples of a streamed batch have their values, and returns the cells that can
    /// be decided now.
    pub(crate) fn bring_values(&self, samples: &[usize]) -> Vec<(FunctionId, usize)> {
        let Some(all) = &self.dependents else { return Vec::new() };
        let cells = all.waiting().flat_map(|function| samples.iter().map(move |sample| (function, *sample)));
        cells.filter(|(function, sample)| all.brings(*sample, *function)).collect()
    }

    /// Returns whether a function's conditions hold for a sample. All outcomes that they compare
    /// must exist.
    pub(crate) fn is_to_run(&self, sample: usize, function: FunctionId) -> bool {
        let run_if = self.functions[function].run_if.as_ref();
        run_if.is_none_or(|run_if| run_if.conditions.iter().all(|one| one.holds(self.shown(sample, one.source).0)))
    }

    /// Records when a gated call became possible, before it can be handed out.
    pub(crate) fn possible_at(&self, sample: usize, function: FunctionId, now_ns: u64) {
        if let Some(all) = &self.dependents {
            all.possible_at(sample, function, now_ns);
        }
    }
}

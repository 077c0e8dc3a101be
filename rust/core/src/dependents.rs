//! Dependencies between functions, and between the cells of a batch.
//!
//! - A condition compares the number that the result shows for its source. It does not hold if the
//!   result shows none (a failure, an abstention, a skipped source without `otherwise`). All
//!   conditions must hold.
//! - A cell is decided once: by the writer of the last outcome that it waits for, after the others
//!   became readable. If the batch is streamed, it also waits for its sample's values.

use crate::append_list::AppendList;
use crate::function::{Function, FunctionId, Shape};
use crate::sync::{AtomicU32, AtomicU64, Ordering};

/// Returns, for each function, the functions whose gates depend on it.
pub(crate) fn dependents(functions: &[Function]) -> Vec<Vec<FunctionId>> {
    let mut of = vec![Vec::new(); functions.len()];
    for (dependent, function) in functions.iter().enumerate() {
        for condition in function.run_if.iter().flat_map(|run_if| &run_if.conditions) {
            if let Some(dependents) = of.get_mut(condition.source).filter(|known| !known.contains(&dependent)) {
                dependents.push(dependent);
            }
        }
    }
    of
}

/// Returns, for each function, the length of the longest chain of functions that wait for its
/// cells. Functions with longer chains go first.
pub(crate) fn heights(functions: &[Function]) -> Vec<usize> {
    let dependents = dependents(functions);
    let mut heights = vec![0; functions.len()];
    // Each round extends every chain by one link.
    for _ in 0..functions.len() {
        for (function, waiting) in dependents.iter().enumerate() {
            heights[function] = waiting.iter().map(|one| heights[*one] + 1).max().unwrap_or(0);
        }
    }
    heights
}

/// Returns why the gates of these functions can't work, if they can't. The package refuses such
/// gates earlier, with the functions' names; this is for other callers.
#[must_use]
pub fn fault(functions: &[Function]) -> Option<String> {
    let mut decided = vec![false; functions.len()];
    for (id, function) in functions.iter().enumerate() {
        decided[id] = function.run_if.is_none();
        for condition in function.run_if.iter().flat_map(|run_if| &run_if.conditions) {
            let both = [Some(function), functions.get(condition.source)];
            if both.iter().any(|one| one.is_none_or(|one| one.shape != Shape::Sample)) {
                return Some(format!("the run_if of '{}' is not between functions of single samples", function.name));
            }
        }
    }
    for _ in 0..functions.len() {
        for (id, function) in functions.iter().enumerate() {
            decided[id] |= function.run_if.iter().all(|run_if| run_if.conditions.iter().all(|one| decided[one.source]));
        }
    }
    let stuck = functions.iter().zip(decided).find(|(_, decided)| !decided)?.0;
    Some(format!("the run_if of '{}' waits for itself", stuck.name))
}

/// Initial room of a batch that begins empty.
const FIRST_SAMPLES: usize = 64;

/// The cells of one gated function.
struct Column {
    /// Number of outcomes that a cell waits for, from the start.
    waits_for: u32,
    /// Per sample, how many outcomes and values its cell still waits for. Written by the threads
    /// that bring them.
    open: AppendList<AtomicU32>,
    /// Per sample, when its call became possible; 0 before. Written under the scheduler's lock.
    since_ns: AppendList<AtomicU64>,
}

/// The gated functions of a batch.
pub(crate) struct Dependents {
    /// Per function, the functions whose cells wait for its cells.
    dependents: Vec<Vec<FunctionId>>,
    /// Per function, its column if it has a gate.
    columns: Vec<Option<Column>>,
}

impl Dependents {
    pub(crate) fn new(functions: &[Function], samples: usize, streamed: bool) -> Option<Self> {
        functions.iter().any(|function| function.run_if.is_some()).then(|| {
            let dependents = dependents(functions);
            let first = if samples == 0 { FIRST_SAMPLES } else { samples };
            let column = |id: FunctionId| {
                let sources = dependents.iter().filter(|waiting| waiting.contains(&id)).count();
                Column {
                    waits_for: u32::try_from(sources).unwrap_or(u32::MAX) + u32::from(streamed),
                    open: AppendList::new(first),
                    since_ns: AppendList::new(first),
                }
            };
            let columns =
                functions.iter().enumerate().map(|(id, one)| one.run_if.as_ref().map(|_| column(id))).collect();
            let dependents = Self { dependents, columns };
            dependents.grow(samples);
            dependents
        })
    }

    pub(crate) fn grow(&self, samples: usize) {
        for column in self.columns.iter().flatten() {
            column.open.grow(samples, || AtomicU32::new(column.waits_for));
            column.since_ns.grow(samples, || AtomicU64::new(0));
        }
    }

    /// Subtracts one from the outcomes and values that a cell waits for; true if that was the last.
    pub(crate) fn brings(&self, sample: usize, function: FunctionId) -> bool {
        let open = self.columns[function].as_ref().and_then(|column| column.open.get(sample));
        open.is_some_and(|open| {
            let left = open.fetch_sub(1, Ordering::AcqRel);
            debug_assert!(left > 0, "a source of function {function}, sample {sample}, counted twice");
            left == 1
        })
    }

    /// The functions whose cells wait for the cells of this one.
    pub(crate) fn of(&self, source: FunctionId) -> &[FunctionId] {
        &self.dependents[source]
    }

    /// The gated functions.
    pub(crate) fn waiting(&self) -> impl Iterator<Item = FunctionId> {
        self.columns.iter().enumerate().filter(|(_, column)| column.is_some()).map(|(function, _)| function)
    }

    /// Records when a call became possible, before it can be handed out.
    pub(crate) fn possible_at(&self, sample: usize, function: FunctionId, now_ns: u64) {
        let column = self.columns[function].as_ref();
        if let Some(since_ns) = column.and_then(|column| column.since_ns.get(sample)) {
            since_ns.store(now_ns.max(1), Ordering::Relaxed);
        }
    }

    pub(crate) fn since_ns(&self, sample: usize, function: FunctionId) -> Option<u64> {
        let since_ns = self.columns[function].as_ref()?.since_ns.get(sample)?.load(Ordering::Relaxed);
        Some(since_ns)
    }
}

#[cfg(all(test, not(feature = "loom")))]
mod tests {
    use std::sync::Arc;

    use super::*;
    use serde::Deserialize;
    use serde::de::IntoDeserializer;
    use serde::de::value::Error;

    use crate::function::{Comparison, Condition, RunIf};
    use crate::scheduler::test_function as function;

    fn gated(sources: &[FunctionId]) -> Function {
        let condition = |source: &FunctionId| Condition { source: *source, comparison: Comparison::Less, bound: 1.0 };
        let run_if = RunIf { conditions: sources.iter().map(condition).collect(), otherwise: f32::NAN };
        Function { run_if: Some(Arc::new(run_if)), ..function() }
    }

    #[test]
    fn no_number_satisfies_no_condition() {
        let named = |operator: &str| Comparison::deserialize(IntoDeserializer::<Error>::into_deserializer(operator));
        for operator in ["<", "<=", ">", ">=", "==", "!="] {
            let comparison = named(operator).unwrap();
            let holds = |shown| Condition { source: 0, comparison, bound: 1.0 }.holds(shown);
            assert!(!holds(f32::NAN), "{operator}");
            assert_eq!(holds(1.0), operator.contains('=') && operator != "!=", "{operator}");
            assert_eq!(holds(0.5), ["<", "<=", "!="].contains(&operator), "{operator}");
            assert_eq!(holds(2.0), [">", ">=", "!="].contains(&operator), "{operator}");
        }
        assert!(named("=").is_err());
    }

    #[test]
    fn a_source_is_as_high_as_the_longest_chain_behind_it() {
        let functions = [function(), gated(&[0]), gated(&[1, 0]), function()];
        assert_eq!(heights(&functions), [2, 1, 0, 0]);
        assert_eq!(dependents(&functions), [vec![1, 2], vec![2], vec![], vec![]]);
        assert_eq!(fault(&functions), None);
    }

    #[test]
    fn conditions_that_can_never_hold_are_found() {
        assert!(fault(&[gated(&[0])]).unwrap().contains("waits for itself"));
        assert!(fault(&[gated(&[1]), gated(&[0])]).unwrap().contains("waits for itself"));
        assert!(fault(&[gated(&[7])]).unwrap().contains("single samples"));
        let group = Function { shape: Shape::Group, ..function() };
        assert!(fault(&[group, gated(&[0])]).unwrap().contains("single samples"));
    }
}

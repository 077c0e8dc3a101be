//! What a trace holds, in numbers.

use std::collections::{BTreeMap, BTreeSet};

use crate::item::Value;
use crate::reader::Recording;

/// The slices of one function.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct FunctionSummary {
    /// Calls in them.
    pub calls: u64,
    pub failed: u64,
    /// Attempts after the first.
    pub retries: u64,
    /// Slices that had not ended.
    pub running: u64,
    pub busy_ns: u64,
    pub longest_ns: u64,
}

/// See the module.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Summary {
    pub processes: Vec<String>,
    /// Tracks with something on them.
    pub tracks: usize,
    pub slices: usize,
    pub instants: usize,
    pub counters: usize,
    pub batches: usize,
    pub dropped: u64,
    /// From the first time to the last.
    pub span_ns: u64,
    pub functions: BTreeMap<String, FunctionSummary>,
    /// Kills and the like, and how many.
    pub moments: BTreeMap<String, u64>,
}

impl Summary {
    /// Of traces on one clock.
    #[must_use]
    pub fn of(recordings: &[Recording]) -> Self {
        let mut summary = Self::default();
        let spans = recordings.iter().filter_map(Recording::span);
        let span = spans.reduce(|all, one| (all.0.min(one.0), all.1.max(one.1)));
        summary.span_ns = span.map_or(0, |(from, to)| to - from);
        recordings.iter().for_each(|one| summary.add(one));
        summary
    }

    fn add(&mut self, recording: &Recording) {
        self.processes.extend(recording.tracks.values().filter(|one| one.is_process()).map(|one| one.name.clone()));
        let slices = recording.slices.iter().map(|one| one.track);
        let others = recording.instants.iter().map(|one| one.0).chain(recording.counters.iter().map(|one| one.0));
        self.tracks += slices.chain(others).collect::<BTreeSet<u64>>().len();
        self.slices += recording.slices.len();
        self.instants += recording.instants.len();
        self.counters += recording.counters.len();
        self.batches += recording.slices.iter().filter(|one| one.number("groups").is_some()).count();
        for slice in &recording.slices {
            let own = ["queue_s", "status"];
            let is_call = slice.details.values.iter().any(|(key, _)| own.contains(&key.as_ref()));
            if !is_call || slice.number("groups").is_some() {
                continue;
            }
            let of = self.functions.entry(slice.details.name.to_string()).or_default();
            of.running += u64::from(slice.to_ns.is_none());
            let ran_ns = slice.to_ns.map_or(0, |to_ns| to_ns.saturating_sub(slice.from_ns));
            let calls = slice.number("calls");
            if calls.is_none() {
                of.longest_ns = of.longest_ns.max(ran_ns);
                of.retries += u64::from(slice.number("attempt").is_some());
            }
            // A frame has its calls in it.
            if slice.depth == 0 {
                of.calls += calls.unwrap_or(1);
                of.busy_ns += ran_ns;
                of.failed += slice.number("failed").unwrap_or_else(|| u64::from(has_failed(&slice.details.values)));
            }
        }
        for (track, _, details) in &recording.instants {
            let ours = recording.tracks.contains_key(track) && !["ready", "gave calls back"].contains(&&*details.name);
            if ours {
                *self.moments.entry(details.name.to_string()).or_default() += 1;
            }
        }
        let dropped: BTreeMap<u64, u64> = recording
            .counters
            .iter()
            .filter(|(track, ..)| recording.tracks.get(track).is_some_and(|one| one.name == "dropped trace events"))
            .map(|(track, _, value)| (recording.root(*track), *value))
            .collect();
        self.dropped += dropped.values().sum::<u64>();
    }
}

fn has_failed(values: &[(std::borrow::Cow<'static, str>, Value)]) -> bool {
    values.iter().any(|(key, value)| {
        key == "status"
            && matches!(value, Value::Text(status) if ["timeout", "error", "crashed", "cancelled"].contains(&&**status))
    })
}

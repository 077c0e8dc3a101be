//! The live state as JSON.

use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::fs;
use std::time::SystemTime;

use guerdon_core::clock::seconds;
use guerdon_core::in_flight::{InFlight, Location};
use guerdon_core::outcome::Status;
use serde_json::{Map, Value, json};

use crate::metrics::histogram::Histogram;
use crate::metrics::snapshot::{Call, Function, Identity, Snapshot, State, unix_seconds};
use crate::metrics::tallies::{Tallies, Tally};

/// Number of calls in flight that are listed, the oldest first.
const CALLS_SHOWN: usize = 20;

/// Returns the live state as JSON.
pub fn state(identity: &Identity, snapshot: &Snapshot, tallies: &Tallies, state: State) -> Vec<u8> {
    let State { batches, mut calls, workers } = state;
    calls.sort_by_key(|one| Reverse(one.in_flight.call.age_ns));
    let calls_in_flight = calls.len();
    let mut workers: BTreeMap<i32, Value> = workers.into_iter().map(|pid| (pid, Value::Null)).collect();
    let mut in_flight = Vec::new();
    for one in calls {
        let location = one.in_flight.location.clone();
        let shown = call(one);
        if in_flight.len() < CALLS_SHOWN {
            in_flight.push(shown.clone());
        }
        if let Location::Worker(pid) = location {
            workers.insert(pid, shown);
        }
    }
    let live = tallies.read_live(&batches);
    let functions = snapshot
        .functions
        .iter()
        .zip(&live)
        .map(|(one, (tally, open_cells))| function(one, tally, *open_cells, tallies.rate(tally)));
    let mut page = json!(identity);
    page["now"] = unix_seconds(SystemTime::now()).into();
    // Outcomes are counted from this time on.
    page["counted_since"] = json!(tallies.since().map(unix_seconds));
    page["functions"] = functions.collect();
    page["workers"] = workers.iter().map(|(pid, call)| worker(*pid, call)).collect();
    page["calls_in_flight"] = calls_in_flight.into();
    page["in_flight"] = json!(in_flight);
    page["endpoints"] = json!(snapshot.endpoints);
    page["nodes"] = json!(snapshot.nodes);
    page["stats"] = json!(snapshot.stats);
    page.to_string().into_bytes()
}

fn function(function: &Function, tally: &Tally, open_cells: usize, rate: f64) -> Value {
    let counts: Map<String, Value> =
        Status::WORDS.iter().zip(tally.samples).map(|(word, count)| ((*word).to_owned(), count.into())).collect();
    let mut usage = json!(function.usage);
    if !function.priced && usage.is_object() {
        usage["cost"] = Value::Null;
    }
    json!({
        "name": function.name,
        "lane": function.lane,
        "open_cells": open_cells,
        "in_flight": function.in_flight,
        "counts": counts,
        // Samples a second, over the last ten seconds.
        "rate": rate,
        "run_s": percentiles(&tally.run),
        "queue_s": percentiles(&tally.queue),
        "groups": tally.groups,
        "groups_without_spread": tally.groups_without_spread,
        "usage": usage,
        "cache": function.cache,
        "breaker_open": function.breaker_open,
    })
}

fn call(Call { function, lane, in_flight: InFlight { call, location, stack } }: Call) -> Value {
    let others = call.others.iter().flat_map(|(_, samples)| samples);
    let samples: usize = call.samples.iter().chain(others).map(ExactSizeIterator::len).sum();
    let (stack, no_stack) = stack.text().map_or_else(|why| (None, Some(why)), |stack| (Some(stack), None));
    json!({
        "function": function,
        "lane": lane,
        "batch": call.batch,
        "sample": call.samples.first().map_or(0, |span| span.start),
        "samples": samples,
        "attempt": call.attempt,
        "phase": call.phase.word(),
        "seconds": seconds(call.age_ns),
        "place": location.to_string(),
        "stack": stack,
        "no_stack": no_stack,
    })
}

/// A worker process with its call, if it has one.
fn worker(pid: i32, call: &Value) -> Value {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
    let kib = status.lines().find_map(|line| line.strip_prefix("VmRSS:")?.trim().strip_suffix(" kB")?.parse().ok());
    json!({
        "pid": pid,
        "rss_bytes": kib.map(|kib: u64| kib.saturating_mul(1024)),
        "function": call["function"],
        "sample": call["sample"],
        "seconds": call["seconds"],
    })
}

fn percentiles(histogram: &Histogram) -> Value {
    let at = |percent| histogram.percentile_ns(percent).map(seconds);
    json!({"p50": at(50), "p90": at(90), "p99": at(99)})
}

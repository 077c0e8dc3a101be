//! The live state as JSON.

use std::time::SystemTime;

use guerdon_core::clock::seconds;
use guerdon_core::outcome::Status;
use serde_json::{Map, Value, json};

use crate::metrics::histogram::Histogram;
use crate::metrics::snapshot::{Function, Identity, Snapshot, State, unix_seconds};
use crate::metrics::tallies::{Tallies, Tally};

/// The slowest calls in flight that are shown.
const CALLS_SHOWN: usize = 20;

/// The live state.
pub fn state(identity: &Identity, snapshot: &Snapshot, tallies: &Tallies, state: State) -> Vec<u8> {
    let State { batches, calls: mut in_flight, workers } = state;
    in_flight.sort_by(|one, other| other.seconds.total_cmp(&one.seconds));
    let calls_in_flight = in_flight.len();
    in_flight.truncate(CALLS_SHOWN);
    let live = tallies.read_live(&batches);
    let functions = snapshot
        .functions
        .iter()
        .zip(&live)
        .map(|(one, (tally, open_cells))| function(one, tally, *open_cells, tallies.rate(tally)));
    let mut page = json!(identity);
    page["now"] = unix_seconds(SystemTime::now()).into();
    // Since when outcomes are counted.
    page["counted_since"] = json!(tallies.since().map(unix_seconds));
    page["functions"] = functions.collect();
    page["workers"] = json!(workers);
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

fn percentiles(histogram: &Histogram) -> Value {
    let at = |percent| histogram.percentile_ns(percent).map(seconds);
    json!({"p50": at(50), "p90": at(90), "p99": at(99)})
}

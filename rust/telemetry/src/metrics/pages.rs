//! Answers of the server: the metrics as text, the live state as JSON.

use std::collections::BTreeMap;
use std::time::SystemTime;

use guerdon_core::clock::seconds;
use guerdon_core::outcome::Status;
use serde::Serialize;

use crate::metrics::families::{self, FAMILIES};
use crate::metrics::histogram::Histogram;
use crate::metrics::snapshot::{
    Cache, Call, Endpoint, Identity, Isolation, Node, Percentiles, Snapshot, State, Worker, unix_seconds,
};
use crate::metrics::tallies::{Tallies, Tally};
use crate::metrics::text::{Number, Sample, Sink, Text};

/// The slowest calls in flight that are shown.
const CALLS_SHOWN: usize = 20;
/// Counters of the engine without a family of their own.
const STATS: [(families::Family, &str); 12] = [
    (families::OPEN_BATCHES, "open_batches"),
    (families::LATE, "late_outcomes"),
    (families::WORKERS, "workers"),
    (families::RESTARTS, "worker_restarts"),
    (families::KILLS, "kills"),
    (families::LOADS, "worker_loads"),
    (families::ABANDONED, "abandoned_threads"),
    (families::CACHE_BYTES, "cache_bytes"),
    (families::FAILOVERS, "failovers"),
    (families::HEDGES, "hedges"),
    (families::HEDGES_WON, "hedges_won"),
    (families::NODES_LOST, "nodes_lost"),
];
/// Counters of dropped entries, by the name of the sink.
const DROPPED: [(&str, &str); 3] =
    [("cache", "cache_dropped"), ("journal", "journal_dropped"), ("trace", "trace_dropped")];

/// The metrics, in OpenMetrics or in Prometheus' own format.
#[must_use]
pub fn metrics(identity: &Identity, snapshot: &Snapshot, tallies: &[Tally], open_metrics: bool) -> String {
    let mut text = Text::new(open_metrics, identity.rank);
    fill(&mut text, identity, snapshot, tallies);
    text.end()
}

/// The metrics as samples, without the label `rank`.
#[must_use]
pub fn samples(identity: &Identity, snapshot: &Snapshot, tallies: &[Tally]) -> Vec<Sample> {
    let mut samples = Vec::new();
    fill(&mut samples, identity, snapshot, tallies);
    samples
}

fn fill(text: &mut impl Sink, identity: &Identity, snapshot: &Snapshot, tallies: &[Tally]) {
    let named = || snapshot.functions.iter().zip(tallies).map(|(function, tally)| (&*function.name, tally));
    for family in FAMILIES {
        match *family {
            families::BUILD => text.family(family, [([identity.version, &identity.python], 1_u64)]),
            families::CODE_ISOLATION => {
                text.family(family, snapshot.isolations.iter().map(|one| (one.labels(), 1_u64)));
            }
            families::STARTED => text.family(family, [([], unix_seconds(identity.started))]),
            families::CALLS => {
                let by_status = named().flat_map(|(name, tally)| {
                    Status::WORDS.iter().zip(tally.samples).map(move |(status, count)| ([name, *status], count))
                });
                text.family(family, by_status);
            }
            families::RUN => text.histograms(family, named().map(|(name, tally)| (name, &tally.run))),
            families::QUEUE => text.histograms(family, named().map(|(name, tally)| (name, &tally.queue))),
            families::GROUPS => text.family(family, named().map(|(name, tally)| ([name], tally.groups))),
            families::FLAT => text.family(family, named().map(|(name, tally)| ([name], tally.groups_without_spread))),
            _ => engine_metrics(text, family, snapshot),
        }
    }
}

/// The metrics that are not counted here.
fn engine_metrics(text: &mut impl Sink, family: &families::Family, snapshot: &Snapshot) {
    let stat = |name: &str| snapshot.stats.get(name).copied();
    if let Some((_, name)) = STATS.iter().find(|(of, _)| of == family) {
        text.family(family, stat(name).map(|number| ([], number)));
    } else if *family == families::DROPPED {
        text.family(family, DROPPED.iter().filter_map(|(sink, name)| Some(([*sink], stat(name)?))));
    } else if family.labels == ["function", "endpoint"] {
        let number = |one: &Endpoint| -> Number {
            match *family {
                families::ENDPOINT_IN_FLIGHT => one.in_flight.into(),
                families::ENDPOINT_ANSWERED => one.answered.into(),
                families::ENDPOINT_FAILED => one.failed.into(),
                families::ENDPOINT_DEFERRED => one.deferred.into(),
                _ => match one.breaker {
                    "closed" => 0_u64.into(),
                    "half-open" => 1_u64.into(),
                    _ => 2_u64.into(),
                },
            }
        };
        let places: Vec<String> = snapshot.endpoints.iter().map(Endpoint::place).collect();
        let all = snapshot.endpoints.iter().zip(&places);
        text.family(family, all.map(|(one, place)| ([&*one.function, &**place], number(one))));
    } else if family.labels == ["node"] {
        let number = |one: &Node| -> Number {
            match *family {
                families::NODE_SLOTS => one.slots.into(),
                families::NODE_CALLS => one.calls.into(),
                families::NODE_BYTES => one.bytes.into(),
                families::NODE_ENDED => one.ended.into(),
                families::NODE_ABANDONED => one.abandoned_threads.into(),
                _ => match one.state {
                    "connecting" => 0_u64.into(),
                    "ready" => 1_u64.into(),
                    _ => 2_u64.into(),
                },
            }
        };
        // Those that were lost go: names come anew with each node of an autoscaler.
        let there = snapshot.nodes.iter().filter(|one| !one.is_lost());
        text.family(family, there.map(|one| ([&*one.name], number(one))));
    } else if *family == families::TOKENS {
        let kinds = snapshot
            .functions
            .iter()
            .filter(|one| one.tokens)
            .filter_map(|one| Some((&*one.name, one.usage?)))
            .flat_map(|(name, usage)| {
                [([name, "prompt"], usage.prompt_tokens), ([name, "completion"], usage.completion_tokens)]
            });
        text.family(family, kinds);
    } else {
        let by_function = snapshot.functions.iter().filter_map(|one| {
            let number: Number = match *family {
                families::IN_FLIGHT => one.in_flight.into(),
                families::REQUESTS => one.usage?.requests.into(),
                families::UNKNOWN if one.tokens => one.usage?.unknown.into(),
                families::CACHED_TOKENS if one.tokens => one.usage?.cached_tokens.into(),
                families::REASONING_TOKENS if one.tokens => one.usage?.reasoning_tokens.into(),
                families::COST if one.priced => one.usage?.cost.into(),
                families::SHARED => one.cache?.shared.into(),
                families::HITS => one.cache.filter(|cache| cache.kept)?.hits.into(),
                families::MISSES => one.cache.filter(|cache| cache.kept)?.misses.into(),
                families::BREAKER => u64::from(one.breaker_open?).into(),
                _ => return None,
            };
            Some(([&*one.name], number))
        });
        text.family(family, by_function);
    }
}

#[derive(Serialize)]
struct StatePage<'a> {
    #[serde(flatten)]
    identity: &'a Identity,
    now: f64,
    /// Since when outcomes are counted.
    counted_since: Option<f64>,
    functions: Vec<FunctionState<'a>>,
    workers: Vec<Worker>,
    /// Calls in flight, of which the slowest are shown.
    calls_in_flight: usize,
    in_flight: Vec<Call>,
    endpoints: &'a [Endpoint],
    nodes: &'a [Node],
    stats: &'a BTreeMap<&'static str, u64>,
}

#[derive(Serialize)]
struct FunctionState<'a> {
    name: &'a str,
    lane: &'static str,
    open_cells: usize,
    in_flight: usize,
    counts: BTreeMap<&'static str, u64>,
    /// Samples a second, over the last ten seconds.
    rate: f64,
    run_s: Percentiles,
    queue_s: Percentiles,
    groups: u64,
    groups_without_spread: u64,
    usage: Option<UsageState>,
    cache: Option<Cache>,
    breaker_open: Option<bool>,
}

#[derive(Serialize)]
struct UsageState {
    requests: u64,
    unknown: u64,
    prompt_tokens: u64,
    cached_tokens: u64,
    completion_tokens: u64,
    reasoning_tokens: u64,
    cost: Option<f64>,
}

/// The live state.
pub fn state(identity: &Identity, snapshot: &Snapshot, tallies: &Tallies, state: State) -> Vec<u8> {
    let State { open_cells, calls: mut in_flight, workers } = state;
    in_flight.sort_by(|one, other| other.seconds.total_cmp(&one.seconds));
    let calls_in_flight = in_flight.len();
    in_flight.truncate(CALLS_SHOWN);
    let functions = snapshot.functions.iter().zip(tallies.read()).enumerate().map(|(index, (function, tally))| {
        let usage = function.usage.map(|usage| UsageState {
            requests: usage.requests,
            unknown: usage.unknown,
            prompt_tokens: usage.prompt_tokens,
            cached_tokens: usage.cached_tokens,
            completion_tokens: usage.completion_tokens,
            reasoning_tokens: usage.reasoning_tokens,
            cost: function.priced.then_some(usage.cost),
        });
        FunctionState {
            name: &function.name,
            lane: function.lane,
            open_cells: open_cells.get(index).copied().unwrap_or(0),
            in_flight: function.in_flight,
            counts: Status::WORDS.into_iter().zip(tally.samples).collect(),
            rate: tallies.rate(&tally),
            run_s: percentiles(&tally.run),
            queue_s: percentiles(&tally.queue),
            groups: tally.groups,
            groups_without_spread: tally.groups_without_spread,
            usage,
            cache: function.cache,
            breaker_open: function.breaker_open,
        }
    });
    let page = StatePage {
        identity,
        now: unix_seconds(SystemTime::now()),
        counted_since: tallies.since().map(unix_seconds),
        functions: functions.collect(),
        workers,
        calls_in_flight,
        in_flight,
        endpoints: &snapshot.endpoints,
        nodes: &snapshot.nodes,
        stats: &snapshot.stats,
    };
    serde_json::to_vec(&page).unwrap_or_default()
}

fn percentiles(histogram: &Histogram) -> Percentiles {
    let at = |percent| histogram.percentile_ns(percent).map(seconds);
    Percentiles { p50: at(50), p90: at(90), p99: at(99) }
}

impl Isolation {
    fn labels(&self) -> [&str; 4] {
        [&self.function, &self.level, &self.layers, &self.missing]
    }
}

impl Endpoint {
    /// Returns its name in a label.
    fn place(&self) -> String {
        self.address.as_ref().map_or_else(|| self.url.clone(), |address| format!("{} ({address})", self.url))
    }
}

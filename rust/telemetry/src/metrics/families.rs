//! Every metric by name, with its meaning and its series: `docs/metrics.md` has the same table.

use guerdon_core::outcome::Status;
use guerdon_core::report::Usage;

use crate::metrics::histogram::Histogram;
use crate::metrics::snapshot::{Cache, Endpoint, Function, Identity, Node, Snapshot, unix_seconds};
use crate::metrics::tallies::Tally;

/// Kind of a metric for Prometheus.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FamilyKind {
    Counter,
    Gauge,
    Histogram,
}

impl FamilyKind {
    #[must_use]
    pub const fn word(self) -> &'static str {
        match self {
            Self::Counter => "counter",
            Self::Gauge => "gauge",
            Self::Histogram => "histogram",
        }
    }
}

/// Figures of an engine, of which metrics are made.
#[derive(Clone, Copy)]
pub struct Figures<'a> {
    pub identity: &'a Identity,
    pub snapshot: &'a Snapshot,
    /// Counts of each function.
    pub tallies: &'a [Tally],
}

/// A value, written so that none of it is lost.
pub enum Measure<'a> {
    Whole(u64),
    Real(f64),
    Times(&'a Histogram),
}

impl From<u64> for Measure<'_> {
    fn from(number: u64) -> Self {
        Self::Whole(number)
    }
}

impl From<usize> for Measure<'_> {
    fn from(number: usize) -> Self {
        Self::Whole(number as u64)
    }
}

impl From<f64> for Measure<'_> {
    fn from(number: f64) -> Self {
        Self::Real(number)
    }
}

/// The values of a family's labels, and the value.
pub type Series<'a> = (Vec<&'a str>, Measure<'a>);

/// A metric with its labels; `rank` comes with all of them.
pub struct Family {
    pub name: &'static str,
    pub kind: FamilyKind,
    pub labels: &'static [&'static str],
    pub help: &'static str,
    /// Its series now; one without any is not shown.
    pub series: for<'a> fn(Figures<'a>) -> Vec<Series<'a>>,
}

/// Declares the families, in the order in which they are shown.
macro_rules! families {
    ($($kind:ident($name:literal, $labels:expr, $help:literal, $series:expr);)*) => {
        pub const FAMILIES: &[Family] =
            &[$(Family { name: $name, kind: FamilyKind::$kind, labels: $labels, help: $help, series: $series }),*];
    };
}

const FUNCTION: &[&str] = &["function"];
const NODE: &[&str] = &["node"];
const ENDPOINT: &[&str] = &["function", "endpoint"];
/// Counters of dropped entries, by the name of the sink.
const DROPPED: [(&str, &str); 3] =
    [("cache", "cache_dropped"), ("journal", "journal_dropped"), ("trace", "trace_dropped")];

/// A counter of the engine.
fn stat<'a>(all: Figures<'a>, name: &str) -> Vec<Series<'a>> {
    all.snapshot.stats.get(name).map(|number| (Vec::new(), (*number).into())).into_iter().collect()
}

fn tallied<'a>(all: Figures<'a>, value: impl Fn(&'a Tally) -> Measure<'a>) -> Vec<Series<'a>> {
    let named = all.snapshot.functions.iter().zip(all.tallies);
    named.map(|(function, tally)| (vec![&*function.name], value(tally))).collect()
}

/// The series of the functions that have a value.
fn by_function<'a>(all: Figures<'a>, value: impl Fn(&'a Function) -> Option<Measure<'a>>) -> Vec<Series<'a>> {
    all.snapshot.functions.iter().filter_map(|one| Some((vec![&*one.name], value(one)?))).collect()
}

/// The series of judges that are counted in tokens.
fn tokens<'a>(all: Figures<'a>, value: fn(Usage) -> u64) -> Vec<Series<'a>> {
    by_function(all, |one| one.usage.filter(|_| one.tokens).map(|usage| value(usage).into()))
}

/// The series of functions with a cache folder.
fn kept<'a>(all: Figures<'a>, value: fn(Cache) -> u64) -> Vec<Series<'a>> {
    by_function(all, |one| one.cache.filter(|cache| cache.kept).map(|cache| value(cache).into()))
}

fn by_endpoint<'a>(all: Figures<'a>, value: impl Fn(&'a Endpoint) -> Measure<'a>) -> Vec<Series<'a>> {
    all.snapshot.endpoints.iter().map(|one| (vec![&*one.function, &*one.place], value(one))).collect()
}

/// The series of all nodes that were not lost: each node of an autoscaler has a new name.
fn by_node<'a>(all: Figures<'a>, value: impl Fn(&'a Node) -> Measure<'a>) -> Vec<Series<'a>> {
    let there = all.snapshot.nodes.iter().filter(|one| one.state != "lost");
    there.map(|one| (vec![&*one.name], value(one))).collect()
}

/// The place of a state's word among those that come before the last one.
fn state<'a>(word: &str, first: [&str; 2]) -> Measure<'a> {
    first.iter().position(|known| *known == word).unwrap_or(first.len()).into()
}

families! {
    Gauge(
        "guerdon_build_info", &["version", "python"], "1, with the versions as labels",
        |all| vec![(vec![all.identity.version, &*all.identity.python], 1_u64.into())]
    );
    Gauge(
        "guerdon_code_isolation_info", &["function", "level", "layers", "missing"],
        "1, with what holds the programs of a code reward as labels",
        |all| all.snapshot.isolations.iter().map(|one| (one.iter().map(|label| &**label).collect(), 1_u64.into())).collect()
    );
    Gauge(
        "guerdon_start_time_seconds", &[], "When the engine started, as Unix time",
        |all| vec![(Vec::new(), unix_seconds(all.identity.started).into())]
    );
    Counter(
        "guerdon_calls_total", &["function", "status"], "Outcomes, one for each sample, by function and status",
        |all| {
            let named = all.snapshot.functions.iter().zip(all.tallies);
            let by_status = named.flat_map(|(function, tally)| {
                let counts = Status::WORDS.iter().zip(tally.samples);
                counts.map(|(status, count)| (vec![&*function.name, *status], count.into()))
            });
            by_status.collect()
        }
    );
    Histogram(
        "guerdon_call_run_seconds", FUNCTION, "How long the calls of a function ran",
        |all| tallied(all, |tally| Measure::Times(&tally.run))
    );
    Histogram(
        "guerdon_call_queue_seconds", FUNCTION, "How long calls waited from when they could be made until they ran",
        |all| tallied(all, |tally| Measure::Times(&tally.queue))
    );
    Counter(
        "guerdon_groups_total", FUNCTION, "Groups with at least two rewards",
        |all| tallied(all, |tally| tally.groups.into())
    );
    Counter(
        "guerdon_groups_without_spread_total", FUNCTION, "Of these, groups whose rewards are all equal",
        |all| tallied(all, |tally| tally.groups_without_spread.into())
    );
    Gauge(
        "guerdon_inflight", FUNCTION, "Calls that run or that a lane is about to run",
        |all| by_function(all, |one| Some(one.in_flight.into()))
    );
    Gauge("guerdon_open_batches", &[], "Batches that are not done", |all| stat(all, "open_batches"));
    Counter(
        "guerdon_late_outcomes_total", &[], "Outcomes that came too late and were dropped",
        |all| stat(all, "late_outcomes")
    );
    Gauge("guerdon_workers", &[], "Worker processes alive", |all| stat(all, "workers"));
    Counter(
        "guerdon_worker_restarts_total", &[], "Workers that took the place of another",
        |all| stat(all, "worker_restarts")
    );
    Counter(
        "guerdon_worker_kills_total", &[], "Workers that were killed for a call out of time", |all| stat(all, "kills")
    );
    Counter(
        "guerdon_worker_loads_total", &[], "Workers that loaded the functions themselves instead of being forked",
        |all| stat(all, "worker_loads")
    );
    Gauge(
        "guerdon_abandoned_threads", &[], "Threads of the thread lane that are stuck in a call out of time",
        |all| stat(all, "abandoned_threads")
    );
    Counter(
        "guerdon_judge_requests_total", FUNCTION, "Requests, retries and hedges included",
        |all| by_function(all, |one| Some(one.usage?.requests.into()))
    );
    Counter(
        "guerdon_judge_unknown_usage_total", FUNCTION,
        "Of these, requests of which it is not known what they used", |all| tokens(all, |usage| usage.unknown)
    );
    Counter(
        "guerdon_judge_tokens_total", &["function", "kind"], "Tokens of requests; kind is prompt or completion",
        |all| {
            let counted = all.snapshot.functions.iter().filter(|one| one.tokens);
            let counted = counted.filter_map(|one| Some((&*one.name, one.usage?)));
            let kinds = counted.flat_map(|(name, usage)| {
                let kinds = [("prompt", usage.prompt_tokens), ("completion", usage.completion_tokens)];
                kinds.map(|(kind, count)| (vec![name, kind], count.into()))
            });
            kinds.collect()
        }
    );
    Counter(
        "guerdon_judge_cached_tokens_total", FUNCTION, "Of the prompt tokens, those that the server had cached",
        |all| tokens(all, |usage| usage.cached_tokens)
    );
    Counter(
        "guerdon_judge_reasoning_tokens_total", FUNCTION, "Of the completion tokens, those of reasoning",
        |all| tokens(all, |usage| usage.reasoning_tokens)
    );
    Counter(
        "guerdon_judge_cost_total", FUNCTION, "What requests cost, in the currency of the function's price",
        |all| by_function(all, |one| one.usage.filter(|_| one.priced).map(|usage| usage.cost.into()))
    );
    Counter(
        "guerdon_cache_shared_total", FUNCTION, "Samples that got the outcome of an identical call in flight",
        |all| by_function(all, |one| Some(one.cache?.shared.into()))
    );
    Counter(
        "guerdon_cache_hits_total", FUNCTION, "Samples whose outcome was in the cache folder",
        |all| kept(all, |cache| cache.hits)
    );
    Counter(
        "guerdon_cache_misses_total", FUNCTION, "Samples looked up in the cache folder in vain",
        |all| kept(all, |cache| cache.misses)
    );
    Gauge(
        "guerdon_cache_size_bytes", &[], "What outcomes take in the cache folders", |all| stat(all, "cache_bytes")
    );
    Counter(
        "guerdon_dropped_rows_total", &["sink"], "Rows that a sink (cache, journal, trace) could not take",
        |all| {
            let count = |(sink, name): &(&'static str, &str)| Some((vec![*sink], (*all.snapshot.stats.get(name)?).into()));
            DROPPED.iter().filter_map(count).collect()
        }
    );
    Counter(
        "guerdon_failovers_total", &[], "Requests that went on to another endpoint", |all| stat(all, "failovers")
    );
    Counter("guerdon_hedges_total", &[], "Requests that were sent a second time", |all| stat(all, "hedges"));
    Counter(
        "guerdon_hedges_won_total", &[], "Of these, those whose second answer came first",
        |all| stat(all, "hedges_won")
    );
    Gauge(
        "guerdon_endpoint_inflight", ENDPOINT, "Requests on their way to an endpoint",
        |all| by_endpoint(all, |one| one.in_flight.into())
    );
    Counter(
        "guerdon_endpoint_answered_total", ENDPOINT, "Requests that an endpoint answered",
        |all| by_endpoint(all, |one| one.answered.into())
    );
    Counter(
        "guerdon_endpoint_failed_total", ENDPOINT, "Requests that failed at an endpoint",
        |all| by_endpoint(all, |one| one.failed.into())
    );
    Counter(
        "guerdon_endpoint_deferred_total", ENDPOINT, "Requests that an endpoint put off (429), which are made again",
        |all| by_endpoint(all, |one| one.deferred.into())
    );
    Gauge(
        "guerdon_endpoint_breaker_state", ENDPOINT, "Its circuit breaker: 0 closed, 1 half-open, 2 open",
        |all| by_endpoint(all, |one| state(one.breaker, ["closed", "half-open"]))
    );
    Gauge(
        "guerdon_limit_breaker_open", FUNCTION,
        "Whether the circuit breaker of the function's limit is open: 0 or 1",
        |all| by_function(all, |one| Some(u64::from(one.breaker_open?).into()))
    );
    Gauge(
        "guerdon_node_state", NODE, "A node: 0 connecting, 1 ready, 2 draining",
        |all| by_node(all, |one| state(one.state, ["connecting", "ready"]))
    );
    Gauge("guerdon_node_slots", NODE, "Workers of a node", |all| by_node(all, |one| one.slots.into()));
    Gauge("guerdon_node_inflight", NODE, "Calls that a node has", |all| by_node(all, |one| one.calls.into()));
    Gauge(
        "guerdon_node_payload_bytes", NODE, "Bytes of the values of these calls",
        |all| by_node(all, |one| one.bytes.into())
    );
    Counter(
        "guerdon_node_calls_total", NODE, "Calls that a node has ended", |all| by_node(all, |one| one.ended.into())
    );
    Gauge(
        "guerdon_node_abandoned_threads", NODE, "Threads of a node that are stuck in a call out of time",
        |all| by_node(all, |one| one.stats.get("abandoned_threads").copied().unwrap_or_default().into())
    );
    Counter("guerdon_nodes_lost_total", &[], "Nodes that were lost", |all| stat(all, "nodes_lost"));
}

//! The table of metrics, with their meanings and series. `docs/metrics.md` has the same table.

use guerdon_core::clock::seconds;
use guerdon_core::outcome::Status;
use guerdon_core::report::Usage;
use guerdon_core::scheduler::CallCounts;
use guerdon_core::snapshots::{EndpointSnapshot, NodeSnapshot, NodeState};

use crate::metrics::histogram::{BOUNDS, Histogram};
use crate::metrics::snapshot::{Function, Identity, Snapshot};
use crate::metrics::tallies::Tally;

/// Figures of an engine for its metrics.
#[derive(Clone, Copy)]
pub struct Figures<'a> {
    pub identity: &'a Identity,
    pub snapshot: &'a Snapshot,
    /// Counts of each function.
    pub tallies: &'a [Tally],
}

/// A number, or times; Prometheus has floats only.
pub enum Measure<'a> {
    Number(f64),
    Times(&'a Histogram),
}

impl Measure<'_> {
    /// Calls `put` with each number: the end of its name, the bound of a bucket, and the number.
    pub(crate) fn numbers(&self, mut put: impl FnMut(&'static str, Option<f64>, f64)) {
        match self {
            Self::Number(number) => put("", None, *number),
            Self::Times(histogram) => {
                for (bound, count) in BOUNDS.into_iter().zip(histogram.cumulative()) {
                    put("_bucket", Some(seconds(bound)), real(count));
                }
                put("_bucket", Some(f64::INFINITY), real(histogram.count()));
                put("_sum", None, seconds(histogram.sum_ns()));
                put("_count", None, real(histogram.count()));
            }
        }
    }
}

#[expect(clippy::cast_precision_loss, reason = "counts up to 9e15")]
const fn real(number: u64) -> f64 {
    number as f64
}

impl From<u64> for Measure<'_> {
    fn from(number: u64) -> Self {
        Self::Number(real(number))
    }
}

impl From<usize> for Measure<'_> {
    fn from(number: usize) -> Self {
        Self::from(number as u64)
    }
}

impl From<f64> for Measure<'_> {
    fn from(number: f64) -> Self {
        Self::Number(number)
    }
}

/// The values of a family's labels, and the value.
pub type Series<'a> = (Vec<&'a str>, Measure<'a>);

/// A metric with its labels; `rank` comes with all of them.
pub struct Family {
    pub name: &'static str,
    /// `counter`, `gauge` or `histogram`.
    pub kind: &'static str,
    pub labels: &'static [&'static str],
    pub help: &'static str,
    /// Returns its series; a metric without any is left out.
    pub series: for<'a> fn(Figures<'a>) -> Vec<Series<'a>>,
}

/// Declares the families in the order of the output: a function that makes series and their labels,
/// and below them the metrics, each with the value that this function takes.
macro_rules! families {
    ($($series:ident $labels:tt { $($kind:ident $name:literal $help:literal: $value:expr;)* })*) => {
        pub const FAMILIES: &[Family] = &[$($(Family {
            name: $name,
            kind: stringify!($kind),
            labels: &$labels,
            help: $help,
            series: |all| $series(all, $value),
        },)*)*];
    };
}

/// Counters of dropped entries, by the name of the sink.
const DROPPED: [(&str, &str); 3] =
    [("cache", "cache_dropped"), ("journal", "journal_dropped"), ("trace", "trace_dropped")];

/// The series of a metric with labels of its own.
fn other<'a>(all: Figures<'a>, series: impl Fn(Figures<'a>) -> Vec<Series<'a>>) -> Vec<Series<'a>> {
    series(all)
}

/// A counter of the engine, by its name in `Dispatcher.stats`.
fn engine<'a>(all: Figures<'a>, name: &str) -> Vec<Series<'a>> {
    all.snapshot.stats.get(name).map(|number| (Vec::new(), (*number).into())).into_iter().collect()
}

fn tally<'a>(all: Figures<'a>, value: impl Fn(&'a Tally) -> Measure<'a>) -> Vec<Series<'a>> {
    let named = all.snapshot.functions.iter().zip(all.tallies);
    named.map(|(function, tally)| (vec![&*function.name], value(tally))).collect()
}

/// The series of the functions that have a value.
fn function<'a>(all: Figures<'a>, value: impl Fn(&'a Function) -> Option<Measure<'a>>) -> Vec<Series<'a>> {
    all.snapshot.functions.iter().filter_map(|one| Some((vec![&*one.name], value(one)?))).collect()
}

/// The series of judges that are counted in tokens.
fn tokens<'a>(all: Figures<'a>, value: fn(Usage) -> u64) -> Vec<Series<'a>> {
    function(all, |one| one.usage.filter(|_| one.tokens).map(|usage| value(usage).into()))
}

/// The series of functions with a cache folder.
fn kept<'a>(all: Figures<'a>, value: fn(CallCounts) -> u64) -> Vec<Series<'a>> {
    function(all, |one| one.cache.filter(|_| one.cached).map(|cache| value(cache).into()))
}

fn endpoint<'a>(all: Figures<'a>, value: impl Fn(&'a EndpointSnapshot) -> Measure<'a>) -> Vec<Series<'a>> {
    all.snapshot.endpoints.iter().map(|one| (vec![&*one.function, &*one.label], value(&one.state))).collect()
}

/// The series of all nodes but lost ones, whose names an autoscaler does not use again.
fn node<'a>(all: Figures<'a>, value: impl Fn(&'a NodeSnapshot) -> Measure<'a>) -> Vec<Series<'a>> {
    let there = all.snapshot.nodes.iter().filter(|one| one.state != NodeState::Lost);
    there.map(|one| (vec![&*one.name], value(one))).collect()
}

fn outcomes(all: Figures<'_>) -> Vec<Series<'_>> {
    let named = all.snapshot.functions.iter().zip(all.tallies);
    let by_status = named.flat_map(|(function, tally)| {
        let counts = Status::WORDS.iter().zip(tally.samples);
        counts.map(|(status, count)| (vec![&*function.name, *status], count.into()))
    });
    by_status.collect()
}

fn tokens_by_kind(all: Figures<'_>) -> Vec<Series<'_>> {
    let counted = all.snapshot.functions.iter().filter(|one| one.tokens);
    let counted = counted.filter_map(|one| Some((&*one.name, one.usage?)));
    let by_kind = counted.flat_map(|(name, usage)| {
        let kinds = [("prompt", usage.prompt_tokens), ("completion", usage.completion_tokens)];
        kinds.map(|(kind, count)| (vec![name, kind], count.into()))
    });
    by_kind.collect()
}

fn dropped_rows(all: Figures<'_>) -> Vec<Series<'_>> {
    let count = |(sink, name): &(&'static str, &str)| Some((vec![*sink], (*all.snapshot.stats.get(name)?).into()));
    DROPPED.iter().filter_map(count).collect()
}

families! {
    other ["version", "python"] {
        gauge "guerdon_build_info" "1, with the versions as labels":
            |all| vec![(vec![all.identity.version, &*all.identity.python], 1_u64.into())];
    }
    other ["function", "level", "layers", "missing"] {
        gauge "guerdon_code_isolation_info" "1, with what holds the programs of a code reward as labels": |all| {
            let labels = all.snapshot.isolations.iter().map(|one| one.iter().map(|label| &**label).collect());
            labels.map(|labels| (labels, 1_u64.into())).collect()
        };
    }
    other [] {
        gauge "guerdon_start_time_seconds" "When the engine started, as Unix time":
            |all| vec![(Vec::new(), all.identity.started.into())];
    }
    other ["function", "status"] {
        counter "guerdon_calls_total" "Outcomes, one for each sample, by function and status": outcomes;
    }
    tally ["function"] {
        histogram "guerdon_call_run_seconds" "How long the calls of a function ran": |one| Measure::Times(&one.run);
        histogram "guerdon_call_queue_seconds" "How long calls waited from when they could be made until they ran":
            |one| Measure::Times(&one.queue);
        counter "guerdon_groups_total" "Groups with at least two rewards": |one| one.groups.into();
        counter "guerdon_groups_without_spread_total" "Of these, groups whose rewards are all equal":
            |one| one.groups_without_spread.into();
    }
    function ["function"] {
        gauge "guerdon_inflight" "Calls that run or that a lane is about to run": |one| Some(one.in_flight.into());
    }
    engine [] {
        gauge "guerdon_open_batches" "Batches that are not done": "open_batches";
        counter "guerdon_late_outcomes_total" "Outcomes that came too late and were dropped": "late_outcomes";
        gauge "guerdon_workers" "Worker processes alive": "workers";
        counter "guerdon_worker_restarts_total" "Workers that took the place of another": "worker_restarts";
        counter "guerdon_worker_kills_total" "Workers that were killed for a call out of time": "kills";
        counter "guerdon_worker_loads_total" "Workers that loaded the functions themselves instead of being forked":
            "worker_loads";
        gauge "guerdon_abandoned_threads" "Threads of the thread lane that are stuck in a call out of time":
            "abandoned_threads";
    }
    function ["function"] {
        counter "guerdon_judge_requests_total" "Requests, retries and hedges included":
            |one| Some(one.usage?.requests.into());
    }
    tokens ["function"] {
        counter "guerdon_judge_unknown_usage_total" "Of these, requests of which it is not known what they used":
            |usage| usage.unknown;
    }
    other ["function", "kind"] {
        counter "guerdon_judge_tokens_total" "Tokens of requests; kind is prompt or completion": tokens_by_kind;
    }
    tokens ["function"] {
        counter "guerdon_judge_cached_tokens_total" "Of the prompt tokens, those that the server had cached":
            |usage| usage.cached_tokens;
        counter "guerdon_judge_reasoning_tokens_total" "Of the completion tokens, those of reasoning":
            |usage| usage.reasoning_tokens;
    }
    function ["function"] {
        counter "guerdon_judge_cost_total" "What requests cost, in the currency of the function's price":
            |one| one.usage.filter(|_| one.priced).map(|usage| usage.cost.into());
        counter "guerdon_cache_shared_total" "Samples that got the outcome of an identical call in flight":
            |one| Some(one.cache?.shared.into());
    }
    kept ["function"] {
        counter "guerdon_cache_hits_total" "Samples whose outcome was in the cache folder": |cache| cache.hits;
        counter "guerdon_cache_misses_total" "Samples looked up in the cache folder in vain": |cache| cache.misses;
    }
    engine [] {
        gauge "guerdon_cache_size_bytes" "What outcomes take in the cache folders": "cache_bytes";
    }
    other ["sink"] {
        counter "guerdon_dropped_rows_total" "Rows that a sink (cache, journal, trace) could not take": dropped_rows;
    }
    engine [] {
        counter "guerdon_failovers_total" "Requests that went on to another endpoint": "failovers";
        counter "guerdon_hedges_total" "Requests that were sent a second time": "hedges";
        counter "guerdon_hedges_won_total" "Of these, those whose second answer came first": "hedges_won";
    }
    endpoint ["function", "endpoint"] {
        gauge "guerdon_endpoint_inflight" "Requests on their way to an endpoint": |one| one.in_flight.into();
        counter "guerdon_endpoint_answered_total" "Requests that an endpoint answered": |one| one.answered.into();
        counter "guerdon_endpoint_failed_total" "Requests that failed at an endpoint": |one| one.failed.into();
        counter "guerdon_endpoint_deferred_total" "Requests that an endpoint put off (429), which are made again":
            |one| one.deferred.into();
        gauge "guerdon_endpoint_breaker_state" "Its circuit breaker: 0 closed, 1 half-open, 2 open":
            |one| ["closed", "half-open"].iter().position(|state| *state == one.breaker).unwrap_or(2).into();
    }
    function ["function"] {
        gauge "guerdon_limit_breaker_open" "Whether the circuit breaker of the function's limit is open: 0 or 1":
            |one| Some(u64::from(one.breaker_open?).into());
    }
    node ["node"] {
        gauge "guerdon_node_state" "A node: 0 connecting, 1 ready, 2 draining": |one| (one.state as u64).into();
        gauge "guerdon_node_slots" "Workers of a node": |one| one.slots.into();
        gauge "guerdon_node_inflight" "Calls that a node has": |one| one.calls.into();
        gauge "guerdon_node_payload_bytes" "Bytes of the values of these calls": |one| one.bytes.into();
        counter "guerdon_node_calls_total" "Calls that a node has ended": |one| one.ended.into();
        gauge "guerdon_node_abandoned_threads" "Threads of a node that are stuck in a call out of time":
            |one| one.stats.abandoned_threads.into();
    }
    engine [] {
        counter "guerdon_nodes_lost_total" "Nodes that were lost": "nodes_lost";
    }
}

//! Every metric by name, with its meaning: `docs/metrics.md` has the same table.

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

/// A metric with its labels; `rank` comes with all of them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Family {
    pub name: &'static str,
    pub kind: FamilyKind,
    pub labels: &'static [&'static str],
    pub help: &'static str,
}

const fn counter(name: &'static str, labels: &'static [&'static str], help: &'static str) -> Family {
    Family { name, kind: FamilyKind::Counter, labels, help }
}

const fn gauge(name: &'static str, labels: &'static [&'static str], help: &'static str) -> Family {
    Family { name, kind: FamilyKind::Gauge, labels, help }
}

const fn histogram(name: &'static str, labels: &'static [&'static str], help: &'static str) -> Family {
    Family { name, kind: FamilyKind::Histogram, labels, help }
}

const FUNCTION: &[&str] = &["function"];
const NODE: &[&str] = &["node"];
const ENDPOINT: &[&str] = &["function", "endpoint"];

pub const BUILD: Family = gauge("guerdon_build_info", &["version", "python"], "1, with the versions as labels");
pub const CODE_ISOLATION: Family = gauge(
    "guerdon_code_isolation_info",
    &["function", "level", "layers", "missing"],
    "1, with what holds the programs of a code reward as labels",
);
pub const STARTED: Family = gauge("guerdon_start_time_seconds", &[], "When the engine started, as Unix time");
pub const CALLS: Family =
    counter("guerdon_calls_total", &["function", "status"], "Outcomes, one for each sample, by function and status");
pub const RUN: Family = histogram("guerdon_call_run_seconds", FUNCTION, "How long the calls of a function ran");
pub const QUEUE: Family = histogram(
    "guerdon_call_queue_seconds",
    FUNCTION,
    "How long calls waited from when they could be made until they ran",
);
pub const GROUPS: Family = counter("guerdon_groups_total", FUNCTION, "Groups with at least two rewards");
pub const FLAT: Family =
    counter("guerdon_groups_without_spread_total", FUNCTION, "Of these, groups whose rewards are all equal");
pub const IN_FLIGHT: Family = gauge("guerdon_inflight", FUNCTION, "Calls that run or that a lane is about to run");
pub const OPEN_BATCHES: Family = gauge("guerdon_open_batches", &[], "Batches that are not done");
pub const LATE: Family = counter("guerdon_late_outcomes_total", &[], "Outcomes that came too late and were dropped");
pub const WORKERS: Family = gauge("guerdon_workers", &[], "Worker processes alive");
pub const RESTARTS: Family = counter("guerdon_worker_restarts_total", &[], "Workers that took the place of another");
pub const KILLS: Family = counter("guerdon_worker_kills_total", &[], "Workers that were killed for a call out of time");
pub const LOADS: Family =
    counter("guerdon_worker_loads_total", &[], "Workers that loaded the functions themselves instead of being forked");
pub const ABANDONED: Family =
    gauge("guerdon_abandoned_threads", &[], "Threads of the thread lane that are stuck in a call out of time");
pub const REQUESTS: Family = counter("guerdon_judge_requests_total", FUNCTION, "Requests, retries and hedges included");
pub const UNKNOWN: Family = counter(
    "guerdon_judge_unknown_usage_total",
    FUNCTION,
    "Of these, requests of which it is not known what they used",
);
pub const TOKENS: Family =
    counter("guerdon_judge_tokens_total", &["function", "kind"], "Tokens of requests; kind is prompt or completion");
pub const CACHED_TOKENS: Family =
    counter("guerdon_judge_cached_tokens_total", FUNCTION, "Of the prompt tokens, those that the server had cached");
pub const REASONING_TOKENS: Family =
    counter("guerdon_judge_reasoning_tokens_total", FUNCTION, "Of the completion tokens, those of reasoning");
pub const COST: Family =
    counter("guerdon_judge_cost_total", FUNCTION, "What requests cost, in the currency of the function's price");
pub const SHARED: Family =
    counter("guerdon_cache_shared_total", FUNCTION, "Samples that got the outcome of an identical call in flight");
pub const HITS: Family = counter("guerdon_cache_hits_total", FUNCTION, "Samples whose outcome was in the cache folder");
pub const MISSES: Family =
    counter("guerdon_cache_misses_total", FUNCTION, "Samples looked up in the cache folder in vain");
pub const CACHE_BYTES: Family = gauge("guerdon_cache_size_bytes", &[], "What outcomes take in the cache folders");
pub const DROPPED: Family =
    counter("guerdon_dropped_rows_total", &["sink"], "Rows that a sink (cache, journal, trace) could not take");
pub const FAILOVERS: Family = counter("guerdon_failovers_total", &[], "Requests that went on to another endpoint");
pub const HEDGES: Family = counter("guerdon_hedges_total", &[], "Requests that were sent a second time");
pub const HEDGES_WON: Family =
    counter("guerdon_hedges_won_total", &[], "Of these, those whose second answer came first");
pub const ENDPOINT_IN_FLIGHT: Family =
    gauge("guerdon_endpoint_inflight", ENDPOINT, "Requests on their way to an endpoint");
pub const ENDPOINT_ANSWERED: Family =
    counter("guerdon_endpoint_answered_total", ENDPOINT, "Requests that an endpoint answered");
pub const ENDPOINT_FAILED: Family =
    counter("guerdon_endpoint_failed_total", ENDPOINT, "Requests that failed at an endpoint");
pub const ENDPOINT_BREAKER: Family =
    gauge("guerdon_endpoint_breaker_state", ENDPOINT, "Its circuit breaker: 0 closed, 1 half-open, 2 open");
pub const BREAKER: Family = gauge(
    "guerdon_limit_breaker_open",
    FUNCTION,
    "Whether the circuit breaker of the function's limit is open: 0 or 1",
);

pub const NODE_STATE: Family = gauge("guerdon_node_state", NODE, "A node: 0 connecting, 1 ready, 2 draining");
pub const NODE_SLOTS: Family = gauge("guerdon_node_slots", NODE, "Workers of a node");
pub const NODE_CALLS: Family = gauge("guerdon_node_inflight", NODE, "Calls that a node has");
pub const NODE_BYTES: Family = gauge("guerdon_node_payload_bytes", NODE, "Bytes of the values of these calls");
pub const NODE_ENDED: Family = counter("guerdon_node_calls_total", NODE, "Calls that a node has ended");
pub const NODE_ABANDONED: Family =
    gauge("guerdon_node_abandoned_threads", NODE, "Threads of a node that are stuck in a call out of time");
pub const NODES_LOST: Family = counter("guerdon_nodes_lost_total", &[], "Nodes that were lost");

/// All of them, in the order in which they are shown.
pub const FAMILIES: &[Family] = &[
    BUILD,
    CODE_ISOLATION,
    STARTED,
    CALLS,
    RUN,
    QUEUE,
    GROUPS,
    FLAT,
    IN_FLIGHT,
    OPEN_BATCHES,
    LATE,
    WORKERS,
    RESTARTS,
    KILLS,
    LOADS,
    ABANDONED,
    REQUESTS,
    UNKNOWN,
    TOKENS,
    CACHED_TOKENS,
    REASONING_TOKENS,
    COST,
    SHARED,
    HITS,
    MISSES,
    CACHE_BYTES,
    DROPPED,
    FAILOVERS,
    HEDGES,
    HEDGES_WON,
    ENDPOINT_IN_FLIGHT,
    ENDPOINT_ANSWERED,
    ENDPOINT_FAILED,
    ENDPOINT_BREAKER,
    BREAKER,
    NODE_STATE,
    NODE_SLOTS,
    NODE_CALLS,
    NODE_BYTES,
    NODE_ENDED,
    NODE_ABANDONED,
    NODES_LOST,
];

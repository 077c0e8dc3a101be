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

/// Declares the families, in the order in which they are shown.
macro_rules! families {
    ($($family:ident = $kind:ident($name:literal, $labels:expr, $help:literal);)*) => {
        $(pub const $family: Family =
            Family { name: $name, kind: FamilyKind::$kind, labels: $labels, help: $help };)*
        pub const FAMILIES: &[Family] = &[$($family),*];
    };
}

const FUNCTION: &[&str] = &["function"];
const NODE: &[&str] = &["node"];
const ENDPOINT: &[&str] = &["function", "endpoint"];

families! {
    BUILD = Gauge("guerdon_build_info", &["version", "python"], "1, with the versions as labels");
    CODE_ISOLATION = Gauge(
        "guerdon_code_isolation_info", &["function", "level", "layers", "missing"],
        "1, with what holds the programs of a code reward as labels"
    );
    STARTED = Gauge("guerdon_start_time_seconds", &[], "When the engine started, as Unix time");
    CALLS = Counter(
        "guerdon_calls_total", &["function", "status"],
        "Outcomes, one for each sample, by function and status"
    );
    RUN = Histogram("guerdon_call_run_seconds", FUNCTION, "How long the calls of a function ran");
    QUEUE = Histogram(
        "guerdon_call_queue_seconds", FUNCTION,
        "How long calls waited from when they could be made until they ran"
    );
    GROUPS = Counter("guerdon_groups_total", FUNCTION, "Groups with at least two rewards");
    FLAT = Counter("guerdon_groups_without_spread_total", FUNCTION, "Of these, groups whose rewards are all equal");
    IN_FLIGHT = Gauge("guerdon_inflight", FUNCTION, "Calls that run or that a lane is about to run");
    OPEN_BATCHES = Gauge("guerdon_open_batches", &[], "Batches that are not done");
    LATE = Counter("guerdon_late_outcomes_total", &[], "Outcomes that came too late and were dropped");
    WORKERS = Gauge("guerdon_workers", &[], "Worker processes alive");
    RESTARTS = Counter("guerdon_worker_restarts_total", &[], "Workers that took the place of another");
    KILLS = Counter("guerdon_worker_kills_total", &[], "Workers that were killed for a call out of time");
    LOADS = Counter(
        "guerdon_worker_loads_total", &[],
        "Workers that loaded the functions themselves instead of being forked"
    );
    ABANDONED = Gauge(
        "guerdon_abandoned_threads", &[],
        "Threads of the thread lane that are stuck in a call out of time"
    );
    REQUESTS = Counter("guerdon_judge_requests_total", FUNCTION, "Requests, retries and hedges included");
    UNKNOWN = Counter(
        "guerdon_judge_unknown_usage_total", FUNCTION,
        "Of these, requests of which it is not known what they used"
    );
    TOKENS = Counter(
        "guerdon_judge_tokens_total", &["function", "kind"],
        "Tokens of requests; kind is prompt or completion"
    );
    CACHED_TOKENS = Counter(
        "guerdon_judge_cached_tokens_total", FUNCTION,
        "Of the prompt tokens, those that the server had cached"
    );
    REASONING_TOKENS = Counter(
        "guerdon_judge_reasoning_tokens_total", FUNCTION,
        "Of the completion tokens, those of reasoning"
    );
    COST = Counter("guerdon_judge_cost_total", FUNCTION, "What requests cost, in the currency of the function's price");
    SHARED = Counter(
        "guerdon_cache_shared_total", FUNCTION,
        "Samples that got the outcome of an identical call in flight"
    );
    HITS = Counter("guerdon_cache_hits_total", FUNCTION, "Samples whose outcome was in the cache folder");
    MISSES = Counter("guerdon_cache_misses_total", FUNCTION, "Samples looked up in the cache folder in vain");
    CACHE_BYTES = Gauge("guerdon_cache_size_bytes", &[], "What outcomes take in the cache folders");
    DROPPED = Counter(
        "guerdon_dropped_rows_total", &["sink"],
        "Rows that a sink (cache, journal, trace) could not take"
    );
    FAILOVERS = Counter("guerdon_failovers_total", &[], "Requests that went on to another endpoint");
    HEDGES = Counter("guerdon_hedges_total", &[], "Requests that were sent a second time");
    HEDGES_WON = Counter("guerdon_hedges_won_total", &[], "Of these, those whose second answer came first");
    ENDPOINT_IN_FLIGHT = Gauge("guerdon_endpoint_inflight", ENDPOINT, "Requests on their way to an endpoint");
    ENDPOINT_ANSWERED = Counter("guerdon_endpoint_answered_total", ENDPOINT, "Requests that an endpoint answered");
    ENDPOINT_FAILED = Counter("guerdon_endpoint_failed_total", ENDPOINT, "Requests that failed at an endpoint");
    ENDPOINT_DEFERRED = Counter(
        "guerdon_endpoint_deferred_total", ENDPOINT,
        "Requests that an endpoint put off (429), which are made again"
    );
    ENDPOINT_BREAKER = Gauge(
        "guerdon_endpoint_breaker_state", ENDPOINT,
        "Its circuit breaker: 0 closed, 1 half-open, 2 open"
    );
    BREAKER = Gauge(
        "guerdon_limit_breaker_open", FUNCTION,
        "Whether the circuit breaker of the function's limit is open: 0 or 1"
    );
    NODE_STATE = Gauge("guerdon_node_state", NODE, "A node: 0 connecting, 1 ready, 2 draining");
    NODE_SLOTS = Gauge("guerdon_node_slots", NODE, "Workers of a node");
    NODE_CALLS = Gauge("guerdon_node_inflight", NODE, "Calls that a node has");
    NODE_BYTES = Gauge("guerdon_node_payload_bytes", NODE, "Bytes of the values of these calls");
    NODE_ENDED = Counter("guerdon_node_calls_total", NODE, "Calls that a node has ended");
    NODE_ABANDONED = Gauge(
        "guerdon_node_abandoned_threads", NODE,
        "Threads of a node that are stuck in a call out of time"
    );
    NODES_LOST = Counter("guerdon_nodes_lost_total", &[], "Nodes that were lost");
}

//! Definition of a reward function, as the package gives it, turned into the core's `Function`.

use std::sync::Arc;

use guerdon_cache::OutcomeStore;
use guerdon_core::compose::Composite;
use guerdon_core::function::{Comparison, Condition, Function, Gather, OnFailure, Policy, RunIf, Shape};
use guerdon_core::outcome_cache::CachePolicy;
use guerdon_http::{CompoundSpec, HttpFunction};
use guerdon_native::kernels::Kernel;
use guerdon_process::ResourceLimits;
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;

use crate::cache::PyOutcomeStore;
use crate::compose::CompositeArg;
use crate::compound::CompoundConfig;
use crate::http::HttpConfig;
use crate::kernel::PyKernel;
use crate::lane_kind::LaneKind;
use crate::limit::LimitArg;
use crate::words::{Seconds, Word};

/// One reward function, as the engine must know it.
pub struct FunctionConfig {
    pub lane: LaneKind,
    /// The lane as users see it: code rewards are functions of the process lane.
    pub lane_word: &'static str,
    pub function: Function,
    /// Store of its outcomes.
    pub store: Option<Arc<OutcomeStore>>,
    pub resource_limits: ResourceLimits,
    /// Event loop that runs it; functions with the same name share one.
    pub event_loop: Option<String>,
    /// Requests of its calls, on the http lane.
    pub http: Option<HttpFunction>,
    /// Several requests of each call, there.
    pub compound: Option<CompoundSpec>,
    /// Calls of members that each call makes, on the compose lane.
    pub compose: Option<Composite>,
    /// Kernel that scores, on the native lane.
    pub kernel: Option<Arc<dyn Kernel>>,
    /// For the thread and asyncio lanes: nodes may run it, where the engine has some.
    pub anywhere: bool,
}

/// The dict of `FunctionSpec.config`, whose values the package has checked.
#[derive(FromPyObject)]
#[pyo3(from_item_all)]
struct FunctionArg<'py> {
    name: String,
    lane: String,
    shape: Word<Shape>,
    timeout: Seconds,
    grace: Seconds,
    setup_timeout: Seconds,
    total_timeout: Option<Seconds>,
    retries: u16,
    concurrency: Option<usize>,
    isolation: String,
    pinned: bool,
    finish: bool,
    #[pyo3(item("loop"))]
    event_loop: Option<String>,
    on_failure: OnFailureArg,
    memory_limit: Option<u64>,
    max_output: Option<u64>,
    env: Vec<(Vec<u8>, Vec<u8>)>,
    limit: Option<LimitArg>,
    gather: Option<(usize, Seconds, bool)>,
    run_if: Option<RunIfArg>,
    pure: bool,
    cache: Option<(PyRef<'py, PyOutcomeStore>, [u8; 32])>,
    http: Option<PyRef<'py, HttpConfig>>,
    compound: Option<CompoundArg<'py>>,
    compose: Option<CompositeArg>,
    member_of: Option<usize>,
    second_columns: Vec<usize>,
    has_fallback: bool,
    kernel: Option<PyRef<'py, PyKernel>>,
    anywhere: bool,
}

/// Conditions, (position of the source, comparison, bound), and what skipped cells show.
#[derive(FromPyObject)]
struct RunIfArg(Vec<(usize, Word<Comparison>, f32)>, Option<f32>);

#[derive(FromPyObject)]
enum OnFailureArg {
    Number(f32),
    Word(String),
}

/// The requests of its calls, or the position of the function whose requests fill its cells, and
/// which column of the answers it has.
#[derive(FromPyObject)]
enum CompoundArg<'py> {
    Leads(PyRef<'py, CompoundConfig>),
    Follows(usize, usize),
}

impl<'a, 'py> FromPyObject<'a, 'py> for FunctionConfig {
    type Error = PyErr;

    fn extract(given: Borrowed<'a, 'py, PyAny>) -> PyResult<Self> {
        let given: FunctionArg<'py> = given.extract()?;
        let on_failure = match &given.on_failure {
            OnFailureArg::Number(number) => OnFailure::Value(*number),
            OnFailureArg::Word(word) if word == "abstain" => OnFailure::Abstain,
            // The package raises for "raise".
            OnFailureArg::Word(_) => OnFailure::Nan,
        };
        let policy = Policy {
            timeout: given.timeout.0,
            grace: given.grace.0,
            setup_timeout: given.setup_timeout.0,
            total_timeout: given.total_timeout.map(|seconds| seconds.0),
            retries: given.retries,
            concurrency: given.concurrency,
            limit: given.limit.map(|limit| limit.limit(given.concurrency)),
            on_failure,
        };
        let (lane, lane_word) = LaneKind::of(&given.lane).ok_or_else(|| {
            PyValueError::new_err(format!("reward function '{}': unknown lane '{}'", given.name, given.lane))
        })?;
        let gather = given.gather.map(|(max_size, wait, across)| Gather { max_size, max_wait: wait.0, across });
        let run_if = given.run_if.map(|RunIfArg(conditions, otherwise)| {
            let condition = |(source, comparison, bound): (usize, Word<Comparison>, f32)| Condition {
                source,
                comparison: comparison.0,
                bound,
            };
            let conditions = conditions.into_iter().map(condition).collect();
            Arc::new(RunIf { conditions, otherwise: otherwise.unwrap_or(f32::NAN) })
        });
        let compose = given.compose.map(CompositeArg::composite);
        let store = given.cache.as_ref().map(|(folder, _)| folder.store.clone());
        let cache = given.cache.map(|(folder, version)| CachePolicy { store: folder.store.clone(), version });
        let function = Function {
            name: given.name.into(),
            shape: given.shape.0,
            gather,
            finish: given.finish,
            run_if,
            pure: given.pure,
            cache,
            member_of: given.member_of,
            member_calls: compose.as_ref().map_or(0, Composite::calls),
            second_columns: given.second_columns.into(),
            has_fallback: given.has_fallback,
            pinned: given.pinned,
            isolated: given.isolation == "call",
            lane: lane.index(),
            policy,
        };
        let compound = given.compound.map(|compound| match compound {
            CompoundArg::Leads(config) => CompoundSpec::Leads(Box::new(config.function.clone())),
            CompoundArg::Follows(leader, column) => CompoundSpec::Follows { leader, column },
        });
        let (memory_limit, max_output, environment) = (given.memory_limit, given.max_output, given.env);
        Ok(Self {
            lane,
            lane_word,
            function,
            store,
            resource_limits: ResourceLimits { memory_limit, max_output, environment },
            event_loop: given.event_loop,
            http: given.http.map(|http| http.function.clone()),
            compound,
            compose,
            kernel: given.kernel.map(|kernel| kernel.kernel.clone()),
            anywhere: given.anywhere,
        })
    }
}

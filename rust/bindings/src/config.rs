//! `FunctionConfig`: what Python says of a reward function, turned into the core's `Function`.

use std::sync::Arc;
use std::time::Duration;

use guerdon_cache::OutcomeStore;
use guerdon_core::function::{Comparison, Condition, Function, Gather, OnFailure, Policy, RunIf, Shape};
use guerdon_core::outcome_cache::CachePolicy;
use guerdon_http::{CompoundSpec, HttpFunction};
use guerdon_native::kernels::Kernel;
use guerdon_process::ResourceLimits;
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;

use crate::cache::PyOutcomeStore;
use crate::compound::CompoundConfig;
use crate::http::HttpConfig;
use crate::kernel::PyKernel;
use crate::lane_kind::LaneKind;
use crate::limit::LimitArg;

/// One reward function, as the engine must know it. The package has checked the values; here they
/// are only turned into types.
#[pyclass(frozen, module = "guerdon._native", name = "FunctionConfig")]
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
    /// Kernel that scores, on the native lane.
    pub kernel: Option<Arc<dyn Kernel>>,
    /// For the thread and asyncio lanes: nodes may run it, where the engine has some.
    pub anywhere: bool,
}

#[pymethods]
impl FunctionConfig {
    #[new]
    #[pyo3(signature = (
        name, *, lane, shape, timeout, grace = 0.5, setup_timeout = 300.0, total_timeout = None, retries = 0, concurrency = None,
        isolation = "worker", pinned = false, finish = false, r#loop = None, on_failure = OnFailureArg::Word("nan".to_owned()),
        memory_limit = None, max_output = None, env = Vec::new(), limit = None, http = None, gather = None,
        run_if = None, pure = false, cache = None, compound = None, follows = None, anywhere = false, kernel = None
    ))]
    #[expect(clippy::too_many_arguments, reason = "keyword arguments of a Python constructor")]
    fn new(
        name: &str,
        lane: &str,
        shape: &str,
        timeout: f64,
        grace: f64,
        setup_timeout: f64,
        total_timeout: Option<f64>,
        retries: u16,
        concurrency: Option<usize>,
        isolation: &str,
        pinned: bool,
        finish: bool,
        r#loop: Option<String>,
        on_failure: OnFailureArg,
        memory_limit: Option<u64>,
        max_output: Option<u64>,
        env: Vec<(Vec<u8>, Vec<u8>)>,
        limit: Option<LimitArg>,
        http: Option<PyRef<'_, HttpConfig>>,
        gather: Option<(usize, f64, bool)>,
        run_if: Option<RunIfArg>,
        pure: bool,
        cache: Option<(PyRef<'_, PyOutcomeStore>, [u8; 32])>,
        compound: Option<PyRef<'_, CompoundConfig>>,
        follows: Option<(usize, usize)>,
        anywhere: bool,
        kernel: Option<PyRef<'_, PyKernel>>,
    ) -> PyResult<Self> {
        let unknown = |what: &str, value: &str| {
            PyValueError::new_err(format!("reward function '{name}': unknown {what} '{value}'"))
        };
        let time = |what: &str, seconds: f64| {
            Duration::try_from_secs_f64(seconds).map_err(|_| {
                PyValueError::new_err(format!("reward function '{name}': {what}={seconds} is no time in seconds"))
            })
        };
        let is_code = lane == "code";
        let lane = match lane {
            "process" | "code" => LaneKind::Process,
            "thread" => LaneKind::Thread,
            "asyncio" => LaneKind::Asyncio,
            "http" => LaneKind::Http,
            "native" => LaneKind::Native,
            other => return Err(unknown("lane", other)),
        };
        let shape = match shape {
            "sample" => Shape::Sample,
            "group" => Shape::Group,
            "batch" => Shape::Batch,
            other => return Err(unknown("shape", other)),
        };
        let gather = gather.map(|(max_size, wait, across)| {
            Ok::<_, PyErr>(Gather { max_size: max_size.max(1), max_wait: time("max_wait", wait)?, across })
        });
        let gather = gather.transpose()?;
        let isolated = match isolation {
            "worker" => false,
            "call" => true,
            other => return Err(unknown("isolation", other)),
        };
        let on_failure = match on_failure {
            OnFailureArg::Number(number) => OnFailure::Value(number),
            OnFailureArg::Word(word) => match word.as_str() {
                "nan" | "raise" => OnFailure::Nan,
                "abstain" => OnFailure::Abstain,
                other => return Err(unknown("on_failure", other)),
            },
        };
        let policy = Policy {
            timeout: time("timeout", timeout)?,
            grace: time("grace", grace)?,
            setup_timeout: time("setup_timeout", setup_timeout)?,
            total_timeout: total_timeout.map(|seconds| time("total_timeout", seconds)).transpose()?,
            retries,
            concurrency: concurrency.map(|calls| calls.max(1)),
            limit: limit.map(|given| given.limit(concurrency)),
            on_failure,
        };
        let resource_limits = ResourceLimits { memory_limit, max_output, environment: env };
        let run_if =
            run_if.map(|run_if| run_if.run_if().map_err(|operator| unknown("comparison", &operator))).transpose()?;
        let lane_index = lane.index();
        let store = cache.as_ref().map(|(folder, _)| folder.store.clone());
        let cache = cache.map(|(folder, version)| CachePolicy { store: folder.store.clone(), version });
        let function = Function {
            name: name.into(),
            shape,
            gather,
            finish,
            run_if,
            pure,
            cache,
            pinned,
            isolated,
            lane: lane_index,
            policy,
        };
        let http = http.map(|http| http.function.clone());
        let leads = compound.map(|compound| CompoundSpec::Leads(compound.function.clone()));
        let compound = leads.or(follows.map(|(leader, column)| CompoundSpec::Follows { leader, column }));
        let kernel = kernel.map(|kernel| kernel.kernel.clone());
        let lane_word = if is_code { "code" } else { lane.word() };
        Ok(Self {
            lane,
            lane_word,
            function,
            store,
            resource_limits,
            event_loop: r#loop,
            http,
            compound,
            kernel,
            anywhere,
        })
    }
}

/// `gate`: conditions, (position of the source, comparison, bound), and what skipped cells show.
#[derive(FromPyObject)]
struct RunIfArg(Vec<(usize, String, f32)>, Option<f32>);

impl RunIfArg {
    /// Returns the gate, or an error if the comparison does not exist.
    fn run_if(self) -> Result<Arc<RunIf>, String> {
        let condition = |(source, operator, bound): (usize, String, f32)| match Comparison::of(&operator) {
            Some(comparison) => Ok(Condition { source, comparison, bound }),
            None => Err(operator),
        };
        let conditions = self.0.into_iter().map(condition).collect::<Result<_, _>>()?;
        Ok(Arc::new(RunIf { conditions, otherwise: self.1.unwrap_or(f32::NAN) }))
    }
}

/// `on_failure`: a word or a number.
#[derive(FromPyObject)]
enum OnFailureArg {
    Number(f32),
    Word(String),
}

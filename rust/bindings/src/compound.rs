//! `CompoundConfig`: a function whose calls are several requests, as Python says it.

use guerdon_core::function::Policy;
use guerdon_http::{CaseRules, Compound, CompoundFunction, Outputs};
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;

use crate::http::HttpConfig;
use crate::limit::LimitArg;
use crate::words::{Seconds, Word, word};

/// Rules for requests: timeout, retries, requests in flight, limit.
#[derive(FromPyObject)]
struct RulesArg(Seconds, u16, Option<usize>, Option<LimitArg>);

impl RulesArg {
    fn policy(self) -> Policy {
        let Self(Seconds(timeout), retries, concurrency, limit) = self;
        let limit = limit.map(|limit| limit.limit(concurrency));
        Policy { retries, concurrency, limit, ..Policy::new(timeout) }
    }
}

/// Rules for judging programs: the rule for outputs, whether the share counts, seconds for all
/// cases, for one and for the compiler, bytes of output, the source above a program whose functions
/// are called.
#[derive(FromPyObject)]
struct CasesArg(Word<Outputs>, bool, f64, Option<f64>, f64, usize, String);

impl CasesArg {
    fn rules(self) -> CaseRules {
        let Self(outputs, share, timeout, case_timeout, compile_timeout, max_output, callers) = self;
        CaseRules { outputs: outputs.0, share, timeout, case_timeout, compile_timeout, max_output, callers }
    }
}

/// Returns whether a program printed the expected output: the rule of sandboxes, for programs here.
#[pyfunction]
pub fn outputs_match(expected: &str, printed: &str, rule: &str) -> PyResult<bool> {
    Ok(word::<Outputs>(rule)?.matches(expected, printed))
}

/// One function of the http lane with compound calls. The package has checked the values.
#[pyclass(frozen, module = "guerdon._native", name = "CompoundConfig")]
pub struct CompoundConfig {
    pub function: CompoundFunction,
}

#[pymethods]
impl CompoundConfig {
    /// `settings` are those of the kind.
    #[new]
    fn new(
        kind: &str,
        members: Vec<PyRef<'_, HttpConfig>>,
        rules: RulesArg,
        settings: &Bound<'_, PyAny>,
    ) -> PyResult<Self> {
        let kind = match kind {
            "criteria" => Compound::Criteria,
            "rubric" => Compound::Rubric(settings.get_item("columns")?.extract()?),
            "cases" => Compound::Cases(settings.get_item("cases")?.extract::<CasesArg>()?.rules()),
            other => return Err(PyValueError::new_err(format!("unknown kind of calls '{other}'"))),
        };
        let members: Vec<_> = members.iter().map(|http| http.function.clone()).collect();
        if members.is_empty() {
            return Err(PyValueError::new_err("a function without members"));
        }
        Ok(Self { function: CompoundFunction { kind, members, rules: rules.policy() } })
    }
}

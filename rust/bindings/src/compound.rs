//! `CompoundConfig`: a function whose calls are several requests, as Python says it.

use guerdon_core::function::Policy;
use guerdon_http::{
    CaseRules, Compound, CompoundFunction, CompoundMember, Outputs, Pairwise, PairwiseScore, Reduce, Reduction,
    Schedule,
};
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;

use crate::http::HttpConfig;
use crate::limit::LimitArg;
use crate::words::{Seconds, Word, word};

/// A member: its name, its requests, which of the rules they obey, and the columns that are those
/// of the second sample of a comparison.
#[derive(FromPyObject)]
struct MemberArg<'py>(String, PyRef<'py, HttpConfig>, usize, Vec<usize>);

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

/// Settings of votes and panels.
#[derive(FromPyObject)]
#[pyo3(from_item_all)]
struct ReductionArg {
    reduce: Word<Reduce>,
    #[pyo3(default)]
    weights: Vec<f64>,
    needed: usize,
    #[pyo3(default)]
    min_agreement: Option<f64>,
}

impl From<ReductionArg> for Reduction {
    fn from(given: ReductionArg) -> Self {
        let ReductionArg { reduce, weights, needed, min_agreement } = given;
        Self { reduce: reduce.0, weights, needed, min_agreement }
    }
}

/// Settings of comparisons.
#[derive(FromPyObject)]
#[pyo3(from_item_all)]
struct PairwiseArg {
    schedule: String,
    rounds: Option<usize>,
    score: Word<PairwiseScore>,
    both_orders: bool,
}

/// One function of the http lane with compound calls. The package has checked the values.
#[pyclass(frozen, module = "guerdon._native", name = "CompoundConfig")]
pub struct CompoundConfig {
    pub function: CompoundFunction,
}

fn unknown(what: &str, value: &str) -> PyErr {
    PyValueError::new_err(format!("unknown {what} '{value}'"))
}

#[pymethods]
impl CompoundConfig {
    /// `settings` are those of the kind.
    #[new]
    fn new(
        kind: &str,
        members: Vec<MemberArg<'_>>,
        rules: Vec<RulesArg>,
        settings: &Bound<'_, PyAny>,
    ) -> PyResult<Self> {
        let reduction = || settings.extract::<ReductionArg>().map(Reduction::from);
        let kind = match kind {
            "votes" => Compound::Votes(settings.get_item("votes")?.extract()?, reduction()?),
            "panel" => Compound::Panel(reduction()?),
            "criteria" => Compound::Criteria,
            "rubric" => Compound::Rubric(settings.get_item("columns")?.extract()?),
            "pairwise" => {
                let PairwiseArg { schedule, rounds, score, both_orders } = settings.extract()?;
                let schedule = match &*schedule {
                    "circular" => Schedule::Circular,
                    "all" => Schedule::AllPairs,
                    "swiss" => Schedule::Swiss(rounds),
                    other => return Err(unknown("schedule", other)),
                };
                Compound::Pairwise(Pairwise { schedule, score: score.0, both_orders })
            }
            "cases" => Compound::Cases(settings.get_item("cases")?.extract::<CasesArg>()?.rules()),
            other => return Err(unknown("kind of calls", other)),
        };
        let rules: Vec<Policy> = rules.into_iter().map(RulesArg::policy).collect();
        let member = |MemberArg(name, http, rules, second): MemberArg<'_>| CompoundMember {
            name,
            request: http.function.clone(),
            rules,
            second,
        };
        let members: Vec<CompoundMember> = members.into_iter().map(member).collect();
        if members.is_empty() || members.iter().any(|member| member.rules >= rules.len()) {
            return Err(PyValueError::new_err("members without rules"));
        }
        Ok(Self { function: CompoundFunction { kind, members, rules } })
    }
}

//! `CompoundConfig`: a function whose calls are several requests, as Python says it.

use std::time::Duration;

use guerdon_core::function::{OnFailure, Policy};
use guerdon_core::limits::Limit;
use guerdon_http::{
    CaseRules, Compound, CompoundFunction, CompoundMember, Outputs, Pairwise, PairwiseScore, Reduce, Reduction,
    Schedule,
};
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;

use crate::http::HttpConfig;
use crate::limit::LimitArg;

/// A member: its name, its requests, which of the rules they obey, and the columns that are those
/// of the second sample of a comparison.
#[derive(FromPyObject)]
struct MemberArg<'py>(String, PyRef<'py, HttpConfig>, usize, Vec<usize>);

/// Rules for requests: timeout, retries, requests in flight, limit.
#[derive(FromPyObject)]
struct RulesArg(f64, u16, Option<usize>, Option<LimitArg>);

impl RulesArg {
    fn policy(self) -> PyResult<Policy> {
        let Self(timeout, retries, concurrency, limit) = self;
        let timeout = Duration::try_from_secs_f64(timeout)
            .map_err(|_| PyValueError::new_err(format!("timeout={timeout} is no time in seconds")))?;
        let limit: Option<Limit> = limit.map(|limit| limit.limit(concurrency));
        Ok(Policy {
            timeout,
            grace: Duration::ZERO,
            setup_timeout: timeout,
            total_timeout: None,
            retries,
            concurrency: concurrency.map(|requests| requests.max(1)),
            limit,
            on_failure: OnFailure::Nan,
        })
    }
}

/// Rules for judging programs: the rule for outputs, whether the share counts, seconds for all
/// cases, for one and for the compiler, bytes of output, the source above a program whose functions
/// are called.
#[derive(FromPyObject)]
struct CasesArg(String, bool, f64, Option<f64>, f64, usize, String);

impl CasesArg {
    fn rules(self) -> PyResult<CaseRules> {
        let Self(outputs, share, timeout, case_timeout, compile_timeout, max_output, callers) = self;
        Ok(CaseRules {
            outputs: rule_named(&outputs)?,
            share,
            timeout,
            case_timeout,
            compile_timeout,
            max_output,
            callers,
        })
    }
}

fn rule_named(name: &str) -> PyResult<Outputs> {
    match name {
        "exact" => Ok(Outputs::Exact),
        "tokens" => Ok(Outputs::Tokens),
        "numbers" => Ok(Outputs::Numbers),
        other => Err(PyValueError::new_err(format!("unknown rule '{other}'"))),
    }
}

/// Returns whether a program printed the expected output: the rule of sandboxes, for programs here.
#[pyfunction]
pub fn outputs_match(expected: &str, printed: &str, rule: &str) -> PyResult<bool> {
    Ok(rule_named(rule)?.matches(expected, printed))
}

/// One function of the http lane with compound calls. The package has checked the values.
#[pyclass(frozen, module = "guerdon._native", name = "CompoundConfig")]
pub struct CompoundConfig {
    pub function: CompoundFunction,
}

#[pymethods]
impl CompoundConfig {
    #[new]
    #[pyo3(signature = (kind, *, members, rules, votes = 1, reduce = "mean", weights = Vec::new(), needed = 1,
        min_agreement = None, columns = 1, schedule = "circular", rounds = None, score = "win_rate", both_orders = true,
        cases = None))]
    #[expect(clippy::too_many_arguments, reason = "keyword arguments of a Python constructor")]
    fn new(
        kind: &str,
        members: Vec<MemberArg<'_>>,
        rules: Vec<RulesArg>,
        votes: usize,
        reduce: &str,
        weights: Vec<f64>,
        needed: usize,
        min_agreement: Option<f64>,
        columns: usize,
        schedule: &str,
        rounds: Option<usize>,
        score: &str,
        both_orders: bool,
        cases: Option<CasesArg>,
    ) -> PyResult<Self> {
        let unknown = |what: &str, value: &str| PyValueError::new_err(format!("unknown {what} '{value}'"));
        let reduce = match reduce {
            "median" => Reduce::Median,
            "mean" => Reduce::Mean,
            "majority" => Reduce::Majority,
            "min" => Reduce::Min,
            "max" => Reduce::Max,
            other => return Err(unknown("reduction", other)),
        };
        let reduction = Reduction { reduce, weights, needed, min_agreement };
        let kind = match kind {
            "votes" => Compound::Votes(votes, reduction),
            "panel" => Compound::Panel(reduction),
            "criteria" => Compound::Criteria,
            "rubric" => Compound::Rubric(columns),
            "pairwise" => {
                let schedule = match schedule {
                    "circular" => Schedule::Circular,
                    "all" => Schedule::AllPairs,
                    "swiss" => Schedule::Swiss(rounds),
                    other => return Err(unknown("schedule", other)),
                };
                let score = match score {
                    "bradley_terry" => PairwiseScore::BradleyTerry,
                    "win_rate" => PairwiseScore::WinRate,
                    other => return Err(unknown("score", other)),
                };
                Compound::Pairwise(Pairwise { schedule, score, both_orders })
            }
            "cases" => {
                let given = cases.ok_or_else(|| PyValueError::new_err("cases= says how programs are judged"))?;
                Compound::Cases(given.rules()?)
            }
            other => return Err(unknown("kind of calls", other)),
        };
        let rules: Vec<Policy> = rules.into_iter().map(RulesArg::policy).collect::<PyResult<_>>()?;
        let members: Vec<CompoundMember> = members
            .into_iter()
            .map(|MemberArg(name, http, rules, second)| CompoundMember {
                name,
                request: http.function.clone(),
                rules,
                second,
            })
            .collect();
        if members.is_empty() || members.iter().any(|member| member.rules >= rules.len()) {
            return Err(PyValueError::new_err("members without rules"));
        }
        Ok(Self { function: CompoundFunction { kind, members, rules } })
    }
}

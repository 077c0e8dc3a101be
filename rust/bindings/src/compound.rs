//! `CompoundSettings`: a function whose calls are several requests, as Python says it.

use std::sync::Arc;

use guerdon_core::function::Policy;
use guerdon_core::spending::Spending;
use guerdon_http::{CaseRules, Compound, CompoundFunction, HttpSettings, KeySource, Outputs};
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use serde::Deserialize;
use serde::de::IntoDeserializer;
use serde::de::value::Error;

/// Rules for judging programs: the rule for outputs, whether the share counts, seconds for all
/// cases, for one and for the compiler, bytes of output, the source above a program whose functions
/// are called.
#[derive(Clone, Deserialize)]
pub struct CasesArg(Outputs, bool, f64, Option<f64>, f64, usize, String);

impl CasesArg {
    fn rules(&self) -> CaseRules {
        let Self(outputs, share, timeout, case_timeout, compile_timeout, max_output, callers) = self.clone();
        CaseRules { outputs, share, timeout, case_timeout, compile_timeout, max_output, callers }
    }
}

/// Returns whether a program printed the expected output: the rule of sandboxes, for programs here.
#[pyfunction]
pub fn outputs_match(expected: &str, printed: &str, rule: &str) -> PyResult<bool> {
    let rule = Outputs::deserialize(rule.into_deserializer());
    Ok(rule.map_err(|error: Error| PyValueError::new_err(error.to_string()))?.matches(expected, printed))
}

/// Kind of the calls, with its settings.
#[derive(Deserialize)]
#[serde(rename_all = "lowercase", deny_unknown_fields)]
pub enum KindArg {
    Cases { cases: CasesArg },
}

/// A function that makes compound calls.
#[derive(Deserialize)]
#[serde(rename_all = "lowercase", deny_unknown_fields)]
pub enum CompoundSettings {
    Leads { kind: KindArg, members: Vec<HttpSettings>, rules: Box<Policy> },
}

impl CompoundSettings {
    /// Makes the function. `caps` adds the dispatcher's cap to the function's own, which all
    /// members share; `keys` has the keys that functions of the user return.
    pub fn spec(
        &self,
        caps: &dyn Fn(Option<Arc<Spending>>) -> Vec<Arc<Spending>>,
        keys: &[KeySource],
    ) -> Result<CompoundFunction, String> {
        let Self::Leads { kind: KindArg::Cases { cases }, members, rules } = self;
        let (kind, rules) = (Compound::Cases(cases.rules()), Policy::clone(rules));
        let first = members.first().ok_or_else(|| "a function without members".to_owned())?;
        let caps = caps(first.own_cap());
        let members = members.iter().map(|http| http.function(&caps, keys)).collect::<Result<_, String>>()?;
        Ok(CompoundFunction { kind, members, rules })
    }
}

//! `math_decision`: the native decider of math answers.

use guerdon_native::kernels::math::{Decision, Question, decide};
use pyo3::prelude::*;
use pyo3::types::{PyBool, PyString};

/// Returns whether an answer is the gold one: True, False, "no gold", or None where math-verify
/// must say.
///
/// `reward`: as TRL's `accuracy_reward` reads both; else as math-verify does by default. `strict`:
/// not where math-verify is lax.
#[pyfunction]
#[pyo3(signature = (gold, answer, *, reward, strict = false))]
pub fn math_decision<'py>(
    py: Python<'py>,
    gold: &Bound<'py, PyString>,
    answer: &Bound<'py, PyString>,
    reward: bool,
    strict: bool,
) -> Bound<'py, PyAny> {
    let question = if reward { Question::Reward } else { Question::Equal };
    // Half a surrogate pair has no UTF-8: Python's regular expressions take it, so they decide.
    let decision = match (gold.to_cow(), answer.to_cow()) {
        (Ok(gold), Ok(answer)) => decide(question, &gold, &answer, strict),
        _ => Decision::Unknown,
    };
    match decision {
        Decision::Equal => PyBool::new(py, true).to_owned().into_any(),
        Decision::Different => PyBool::new(py, false).to_owned().into_any(),
        Decision::NoGold => PyString::intern(py, "no gold").into_any(),
        Decision::Unknown => py.None().into_bound(py),
    }
}

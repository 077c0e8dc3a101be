//! `guerdon.parse` for the engine: a parser made of what Python says, and `read_score`, which reads
//! one answer.

use std::collections::BTreeMap;

use guerdon_core::outcome::Cell;
use guerdon_http::{
    AnswerText, Choice, Criterion, JsonPath, Layout, LogProb, Method, Pattern, Range, Rubric, ScoreParser, Which,
};
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;

/// A `guerdon.parse.Parse`, which the package has checked; what only the engine can tell raises
/// `ValueError`.
#[derive(FromPyObject)]
pub struct ParseArg {
    kind: String,
    value: String,
    words: Vec<(String, f64)>,
    others: Vec<String>,
    which: Option<String>,
    range: Option<(f64, f64)>,
    reasoning: String,
}

impl ParseArg {
    pub fn parser(self) -> PyResult<ScoreParser> {
        let method = match self.kind.as_str() {
            "number" if self.value.is_empty() => Method::Number,
            "number" => Method::Labelled(self.value),
            "tag" => Method::Tag(self.value),
            "regex" => {
                let words: BTreeMap<String, f64> = self.words.into_iter().collect();
                let pattern = Pattern::new(&self.value, words);
                Method::Pattern(pattern.map_err(PyValueError::new_err)?)
            }
            "json" => Method::Json(json_path(&self.value)?),
            "yes_no" => Method::YesNo,
            "choice" => Method::Choice(Choice::new(self.words)),
            "logprob" => {
                let numbers = self.words.into_iter().map(|(_, number)| number).collect();
                Method::LogProb(LogProb { token: self.value, others: self.others, numbers })
            }
            "rubric" => {
                let criteria = self.words.into_iter().map(|(name, weight)| Criterion { name, weight }).collect();
                let layout = if self.value == "tags" { Layout::Tags } else { Layout::Json };
                Method::Rubric(Rubric { criteria, layout })
            }
            "function" => Method::Function,
            other => return Err(PyValueError::new_err(format!("unknown way to parse '{other}'"))),
        };
        let which = match self.which.as_deref() {
            Some("first") => Which::First,
            Some("last") => Which::Last,
            _ => Which::Only,
        };
        let range = self.range.map(|(low, high)| Range { low, high });
        Ok(ScoreParser { method, which, range, keep_reasoning: self.reasoning == "keep" })
    }
}

/// A path to a field.
pub fn json_path(text: &str) -> PyResult<JsonPath> {
    JsonPath::parse(text).ok_or_else(|| PyValueError::new_err(format!("{text:?} is not a path to a field")))
}

/// The score in an answer, None where it abstains; A `ValueError` has the reason if there is none.
#[pyfunction]
#[pyo3(signature = (parse, text, *, cut = false, reasoning = None))]
pub fn read_score(parse: ParseArg, text: &str, cut: bool, reasoning: Option<&str>) -> PyResult<Option<f64>> {
    match parse.parser()?.read_answer(AnswerText { text, reasoning, cut }) {
        Ok(Cell::Value(value)) => Ok(Some(value)),
        Ok(Cell::Abstained) => Ok(None),
        Ok(Cell::Invalid(why)) | Err(why) => Err(PyValueError::new_err(why)),
        Ok(Cell::Reported(reported)) => Err(PyValueError::new_err(reported.1)),
    }
}

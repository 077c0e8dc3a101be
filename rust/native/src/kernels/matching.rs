//! Exact and normalised match.

use std::borrow::Cow;

use crate::kernels::fault::{Fault, Score, Stop};
use crate::kernels::input::{Input, InputForm};
use crate::kernels::kernel::Kernel;
use crate::kernels::python_text::{is_punctuation, last_tagged, lower, split};

/// Part of a text that is compared: all of it, or the contents of its last `<tag>…</tag>`.
#[derive(Debug, Default)]
pub struct Part(pub Option<String>);

impl Part {
    /// Returns the part; `None` if the tag is missing.
    pub fn of<'a>(&self, text: &'a str) -> Option<&'a str> {
        match &self.0 {
            None => Some(text),
            Some(tag) => last_tagged(text, tag),
        }
    }
}

/// Returns the best score of a text over its references; 0 if the compared part is missing.
pub fn best_of(
    inputs: &[Input<'_>],
    part: &Part,
    mut score: impl FnMut(&str, &[Cow<'_, str>]) -> Result<f64, Fault>,
) -> Result<Score, Fault> {
    let Some(references) = Input::references(inputs, 1)? else { return Ok(None) };
    match part.of(Input::text(inputs)?) {
        Some(text) => score(text, &references).map(Some),
        None => Ok(Some(0.0)),
    }
}

/// Scores 1 if `is` holds for one of the references; checks before each whether to stop.
pub fn is_any(references: &[Cow<'_, str>], stop: &dyn Stop, is: impl Fn(&str) -> bool) -> Result<f64, Fault> {
    for reference in references {
        stop.check()?;
        if is(reference) {
            return Ok(1.0);
        }
    }
    Ok(0.0)
}

/// Scores 1 if a reference equals the text, character by character.
pub struct ExactMatch {
    pub part: Part,
}

impl Kernel for ExactMatch {
    fn inputs(&self) -> Vec<InputForm> {
        vec![InputForm::Text, InputForm::References]
    }

    fn score(&self, inputs: &[Input<'_>], stop: &dyn Stop) -> Result<Score, Fault> {
        best_of(inputs, &self.part, |text, references| is_any(references, stop, |reference| reference == text))
    }
}

/// Scores 1 if a reference equals the text after both are normalised.
pub struct NormalizedMatch {
    pub part: Part,
    pub ignore_case: bool,
    pub ignore_punctuation: bool,
    pub ignore_numbers: bool,
    pub ignore_space: bool,
}

impl NormalizedMatch {
    fn normalized(&self, text: &str) -> String {
        let text = if self.ignore_case { lower(text) } else { text.to_owned() };
        let is_left = |one: &char| {
            let left_out =
                (self.ignore_punctuation && is_punctuation(*one)) || (self.ignore_numbers && one.is_ascii_digit());
            !left_out
        };
        let text: String = text.chars().filter(is_left).collect();
        if self.ignore_space { split(&text).collect::<Vec<_>>().join(" ") } else { text }
    }
}

impl Kernel for NormalizedMatch {
    fn inputs(&self) -> Vec<InputForm> {
        vec![InputForm::Text, InputForm::References]
    }

    fn score(&self, inputs: &[Input<'_>], stop: &dyn Stop) -> Result<Score, Fault> {
        best_of(inputs, &self.part, |text, references| {
            let text = self.normalized(text);
            is_any(references, stop, |reference| self.normalized(reference) == text)
        })
    }
}

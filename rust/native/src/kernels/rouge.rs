//! ROUGE-L of words: the length of their longest common subsequence.

use serde::Deserialize;

use crate::kernels::bit_parallel::common_subsequence;
use crate::kernels::fault::{Fault, Score, Stop};
use crate::kernels::input::{Input, InputForm};
use crate::kernels::kernel::Kernel;
use crate::kernels::matching::{Part, best_of};
use crate::kernels::python_text::lower;
use crate::kernels::tokens::TokenNumbers;

/// The one of the three numbers that is the score.
#[derive(Clone, Copy, Debug, Deserialize, PartialEq, Eq)]
#[serde(rename_all = "snake_case")]
pub enum Measure {
    Fmeasure,
    Precision,
    Recall,
}

/// Scores by ROUGE-L. The reference with the greatest F-measure counts, the first one if several
/// have it.
pub struct RougeL {
    pub measure: Measure,
}

/// Runs of a-z and 0-9, in lower case.
fn words(text: &str) -> impl Iterator<Item = &str> {
    let is_other = |one: char| !(one.is_ascii_lowercase() || one.is_ascii_digit());
    text.split(is_other).filter(|word| !word.is_empty())
}

/// Returns F-measure, precision and recall.
fn rouge_l(text: &str, reference: &str, stop: &dyn Stop) -> Result<(f64, f64, f64), Fault> {
    let mut numbering = TokenNumbers::new();
    let found = numbering.numbers(words(text));
    let wanted = numbering.numbers(words(reference));
    if found.is_empty() || wanted.is_empty() {
        return Ok((0.0, 0.0, 0.0));
    }
    let common = common_subsequence(&found, &wanted, numbering.len(), stop)? as f64;
    let (precision, recall) = (common / found.len() as f64, common / wanted.len() as f64);
    let sum = precision + recall;
    let fmeasure = if sum > 0.0 { 2.0 * precision * recall / sum } else { 0.0 };
    Ok((fmeasure, precision, recall))
}

impl Kernel for RougeL {
    fn inputs(&self) -> Vec<InputForm> {
        vec![InputForm::Text, InputForm::References]
    }

    fn score(&self, inputs: &[Input<'_>], stop: &dyn Stop) -> Result<Score, Fault> {
        best_of(inputs, &Part::default(), |text, references| {
            let text = lower(text);
            let mut best: Option<(f64, f64, f64)> = None;
            for reference in references {
                let one = rouge_l(&text, &lower(reference), stop)?;
                if best.is_none_or(|best| one.0 > best.0) {
                    best = Some(one);
                }
            }
            let (fmeasure, precision, recall) = best.unwrap_or_default();
            Ok(match self.measure {
                Measure::Fmeasure => fmeasure,
                Measure::Precision => precision,
                Measure::Recall => recall,
            })
        })
    }
}
